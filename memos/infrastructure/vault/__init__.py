"""The only door to stored cubes."""
