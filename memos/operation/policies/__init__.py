"""Policies, one file a system."""
