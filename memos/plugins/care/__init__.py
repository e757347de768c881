"""Looks after a vault as a whole: checks, backups, figures; its log of decisions, keys, and users who are removed."""
