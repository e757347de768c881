"""The tables beside the cubes, one file each."""
