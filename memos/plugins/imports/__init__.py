"""Imports of other programs' memory formats."""
