"""LoRA adapters: read, written and exported as folders, and served row by row beside the base model."""
