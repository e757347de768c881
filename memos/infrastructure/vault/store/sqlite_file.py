"""A connection to a file of SQLite, or with a key to one of SQLCipher, whose pages carry a proof each (HMAC-SHA512).

Knows the two modules and what they raise; must not know what is in the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from memos.plugins.encryption.vault_key import DataKey


def module(key: DataKey | None) -> Any:
    """The standard sqlite3, or the one that encrypts."""
    if key is None:
        return sqlite3
    import sqlcipher3

    return sqlcipher3


def damaged(key: DataKey | None) -> tuple[type[Exception], ...]:
    """What is raised for a damaged file, whose own words may be damaged in its messages. SQLCipher calls it a lack of
    memory, too, where a page is not as it was encrypted."""
    found = module(key).DatabaseError, UnicodeDecodeError
    return found if key is None else (*found, MemoryError)


def why(error: BaseException) -> str:
    return str(error) or "a page is not as it was encrypted"


def connect(file: Path | str, key: DataKey | None, name: str = "", **options: Any) -> Any:
    """name: of the file that the key is made for, where it is not the file's own; options: of the module's connect."""
    if key is None:
        return sqlite3.connect(file, **options)
    # cached_statements: SQLCipher's module keeps the first ones in a full cache, and those only made the tables
    db = module(key).connect(file, cached_statements=1000, **options)
    try:
        db.execute(f"PRAGMA key = {literal(key, name or Path(file).name)}")
        db.execute("PRAGMA cipher_log_level = NONE")  # what it writes to stderr
    except BaseException:
        db.close()
        raise
    return db


def attach(schema: str, file: Path | str, key: DataKey | None, name: str = "") -> tuple[str, tuple[str]]:
    """The statement that attaches a file under a name, and its values."""
    with_key = f" KEY {literal(key, name or Path(file).name)}" if key else ""
    return f"ATTACH ? AS {schema}{with_key}", (str(file),)


def literal(key: DataKey | None, name: str) -> str:
    """SQLCipher's, of a file's key as it is, without its slow derivation from a passphrase; of none."""
    return f"\"x'{key.made(name).hex()}'\"" if key else "''"
