"""Optional parts behind extension points, named in pyproject.toml; the core imports none of them."""
