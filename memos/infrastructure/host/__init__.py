"""The local model. The only room that imports torch, transformers and peft."""
