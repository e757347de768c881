"""Cubes in the vault's rows: how they are read, and found by what they say, their age, their use and what replaced them."""
