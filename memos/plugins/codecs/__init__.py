"""Ways to store KV beside raw: in fewer bits, and as it is behind other memories."""
