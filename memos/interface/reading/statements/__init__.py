"""Reads the facts that a sentence states."""
