"""Optional parts behind extension points. The core imports none of them; each names itself in pyproject.toml."""
