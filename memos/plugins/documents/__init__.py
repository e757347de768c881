"""Readers of PDF, HTML and Markdown files, and of tables."""
