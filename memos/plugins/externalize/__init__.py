"""Back to text: what adapters and KV say, with the evidence for it, and kept as memories that a model wrote."""
