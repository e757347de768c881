"""Governs states, versions, what is current and what is forgotten."""
