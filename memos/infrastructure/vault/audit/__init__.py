"""Decisions, hash-chained and signed, and statements signed by the same keys."""
