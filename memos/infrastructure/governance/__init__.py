"""Decides who may do what."""
