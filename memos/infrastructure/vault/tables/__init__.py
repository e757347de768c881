"""The tables beside the cubes, grouped by what they are of."""
