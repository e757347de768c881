"""Looks after a vault as a whole: checks, backs up, restores, measures."""
