"""KV caches as memory: encoded, moved, composed, stored in files and placed in tiers."""
