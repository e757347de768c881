"""The kernel: the main path, and the public calls."""
