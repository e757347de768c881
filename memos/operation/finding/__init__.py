"""Finds memories: indexes, signals and ranking."""
