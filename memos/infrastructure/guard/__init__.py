"""Decides what a memory may bring in and give away; pure functions of values and of the config."""
