"""Reads cubes from the vault's rows, and finds them by words, age, use and replacement."""
