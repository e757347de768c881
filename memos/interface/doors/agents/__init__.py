"""Doors for programs that talk with a model: a chat loop."""
