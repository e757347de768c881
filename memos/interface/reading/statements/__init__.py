"""What a sentence states."""
