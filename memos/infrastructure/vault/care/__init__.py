"""Looks after a vault as a whole: checks it, searches it for what is left, measures it."""
