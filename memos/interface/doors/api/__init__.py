"""The Memory API: the public calls as plain values."""
