"""`memos config`: what can be set, for people and editors."""
