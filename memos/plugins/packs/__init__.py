"""Packs of memories (the Memory Interchange Protocol), and registries that publish them."""
