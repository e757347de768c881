"""Turns language into operations; knows no stores and no tensors."""
