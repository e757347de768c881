"""Experiments from YAML, and their reports."""
