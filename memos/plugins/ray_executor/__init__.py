"""Background jobs on a Ray cluster: actors that hold the model and do what `memos work` does."""
