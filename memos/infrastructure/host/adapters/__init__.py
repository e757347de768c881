"""Parametric memory: LoRA adapters, trained, saved and served."""
