"""Policies, one file for each memory system."""
