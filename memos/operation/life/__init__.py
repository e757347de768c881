"""States, versions, what is current, what is forgotten."""
