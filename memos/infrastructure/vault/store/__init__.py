"""What every store has: the schema, whose turn it is to write, the time, files that are whole on disk."""
