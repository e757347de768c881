"""Indexes and ranking."""
