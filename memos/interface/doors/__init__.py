"""Doors to the public calls: Python, command line, HTTP."""
