"""Vaults on a PostgreSQL server."""
