"""Activation memory: KV caches, encoded, composed, stored."""
