"""Keeps the rows of a vault in files of SQLite, which need no plug-in."""
