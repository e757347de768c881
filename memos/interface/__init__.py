"""Language in and out: reading, and the doors."""
