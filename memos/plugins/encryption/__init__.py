"""Encrypted vaults: keys, sealed files, SQLCipher."""
