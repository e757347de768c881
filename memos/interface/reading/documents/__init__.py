"""Files to turns, passages and rows."""
