"""One file for each table beside the cubes."""
