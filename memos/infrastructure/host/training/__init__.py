"""Makes adapters and trained KV from lessons, judges them, and does so in a process of its own."""
