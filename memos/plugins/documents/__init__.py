"""Readers of PDF and HTML files."""
