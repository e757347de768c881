"""Carries out policies that write: each returns operations, and the kernel does them as one transaction."""
