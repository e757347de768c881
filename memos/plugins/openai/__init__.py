"""Serves OpenAI's API over the memory of the caller."""
