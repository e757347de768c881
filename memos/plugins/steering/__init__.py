"""Steering: a direction in the hidden states, made from contrasting prompts, gated, in force until it is revoked."""
