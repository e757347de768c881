"""Opens a SQLite file as it is, or encrypted by a plug-in; must not know what is in the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol


class Driver(Protocol):
    """A module of SQLite's, and what it needs to open the files of one vault."""

    reserved_bytes: int  # of each page, which hold no rows
    checks: tuple[str, ...]  # PRAGMAs that look through a file
    damaged: tuple[type[Exception], ...]  # what is raised for a damaged file, in words that may be damaged too
    unusable: type[Exception]  # what is raised where the system is in the way

    def connect(self, file: Path | str, name: str = "", **options: Any) -> sqlite3.Connection:
        """name: of the file that this one stands for, where that is another; options: of the module's connect."""

    def attach(self, schema: str, file: Path | str, name: str = "") -> tuple[str, tuple[str]]:
        """The statement that attaches a file under a name, and its values."""


class PlainDriver:
    """Files as they are."""

    reserved_bytes = 0
    checks: tuple[str, ...] = ("integrity_check",)
    damaged: tuple[type[Exception], ...] = (sqlite3.DatabaseError, UnicodeDecodeError)
    unusable: type[Exception] = sqlite3.OperationalError

    def connect(self, file: Path | str, name: str = "", **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(file, **options)

    def attach(self, schema: str, file: Path | str, name: str = "") -> tuple[str, tuple[str]]:
        return f"ATTACH ? AS {schema}", (str(file),)


PLAIN_DRIVER = PlainDriver()


def why(error: BaseException) -> str:
    """What an error says; SQLCipher says nothing of a page that cannot be decrypted."""
    return str(error) or "a page is not as it was encrypted"
