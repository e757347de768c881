"""Payloads and indexes as files."""
