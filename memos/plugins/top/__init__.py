"""`memos top`, a live view of a vault in a terminal."""
