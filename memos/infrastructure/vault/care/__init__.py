"""Looks at a vault as a whole: sums up its files, searches it for what is left, measures it."""
