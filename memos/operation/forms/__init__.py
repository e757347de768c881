"""Serves the three forms, and moves memories between them."""
