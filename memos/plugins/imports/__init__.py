"""Imports memories from other programs' formats."""
