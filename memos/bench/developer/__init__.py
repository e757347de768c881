"""Benchmarks and data sets for people who change memos; they are left out of the wheel."""
