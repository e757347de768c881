"""The model itself: loading, prompts, decoding, and what its KV can be used for."""
