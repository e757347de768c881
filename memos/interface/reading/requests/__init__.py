"""Reads what a message asks for."""
