"""Resolves words for times to days."""
