"""Doors to the public calls: Python and the command line."""
