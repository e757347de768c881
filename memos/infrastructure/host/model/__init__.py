"""The model itself: loading, prompts, decoding."""
