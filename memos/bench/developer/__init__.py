"""Benchmarks and data sets for those who change memos: they stay in the checkout, out of the wheel."""
