"""Opens vault.db and vectors.db: creates them, upgrades them, or refuses them as they are.

Knows files and schemas; must not know what the rows are for.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from memos.errors import VaultError
from memos.infrastructure.vault.store import schema, transactions
from memos.infrastructure.vault.store.on_disk import land
from memos.infrastructure.vault.store.transactions import WriterLock


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


_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")  # of either file
# recursive: a row that is replaced goes as one that is deleted
_PRAGMAS_OF_CONNECTION = ("foreign_keys = ON", "recursive_triggers = ON")


def side_of(file: Path) -> Path:
    """The file of vectors, beside vault.db."""
    return file.with_name("vectors.db")


def opened(file: Path, driver: Driver, lock: WriterLock) -> sqlite3.Connection:
    """The connection that writes. New files are for their owner alone, whatever the umask says."""
    try:
        for path in (file, side_of(file)):
            if not path.exists():
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        db = _open(file, driver)
        try:
            _prepare(db, file, driver, lock)
        except BaseException:
            db.close()
            raise
    except (driver.unusable, OSError) as error:
        raise VaultError(
            f"{file} cannot be opened ({error}); it is as it was, make sure that the disk has room, the folder can be "
            "written to and no other process holds the vault, and try again"
        ) from error
    except driver.damaged as error:
        raise VaultError(
            f"{file} is not a vault ({why(error)}); move it away, or set vault.path to another folder"
        ) from error
    return db


def opened_to_read(file: Path, driver: Driver) -> sqlite3.Connection:
    """A connection that reads."""
    db = _open(file, driver)
    try:
        db.execute(*driver.attach("side", side_of(file)))
        db.execute("PRAGMA query_only = ON")
    except BaseException:
        db.close()
        raise
    return db


def _open(file: Path, driver: Driver) -> sqlite3.Connection:
    return driver.connect(file, timeout=transactions.WAIT_S, isolation_level=None, check_same_thread=False)


def _prepare(db: sqlite3.Connection, file: Path, driver: Driver, lock: WriterLock) -> None:
    """Make the tables of a new vault; refuse what is no vault before anything is written to it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version or not tables:
        schema.require_known(file, version or schema.SCHEMA_VERSION)
    else:
        raise VaultError(f"{file} is the database of another program; set vault.path to another folder")
    _attach(db, side_of(file), driver, lock)
    for pragma in (*(f"{of}.{pragma}" for of in ("main", "side") for pragma in _PRAGMAS), *_PRAGMAS_OF_CONNECTION):
        db.execute(f"PRAGMA {pragma}").fetchall()
    if version < schema.SCHEMA_VERSION:
        with lock.held(transactions.WAIT_S):
            _upgrade(db, file, driver)
    db.execute(
        """CREATE TEMP TRIGGER vectors_delete AFTER DELETE ON main.vectors BEGIN
           DELETE FROM readings WHERE n = old.n; END"""
    )
    db.execute("SELECT 1 FROM main.sqlite_master").fetchone()  # the log is there from the first read on
    db.execute("PRAGMA main.cache_size = -32768")  # KiB: an index of digests is written all over
    db.execute("SELECT 1 FROM clock").fetchone()  # a file that had no log has one from its first reading
    db.execute("PRAGMA main.synchronous = NORMAL")  # from here on, GroupSync sees to it that commits are on disk


def _upgrade(db: sqlite3.Connection, file: Path, driver: Driver) -> None:
    """All or nothing. A copy of what was there is kept until a text is deleted, which would lie in it."""
    db.execute("BEGIN IMMEDIATE")
    (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been here first
    copies, newest = list[Path](), schema.SCHEMA_VERSION
    try:
        if 0 < version < newest:
            copies.append(_back_up(file, version, driver))
        steps = (schema.UPGRADES[n] for n in range(version, newest)) if version else (schema.TABLES,)
        for statement in chain.from_iterable(steps):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {newest}")
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        for copy in copies:
            copy.unlink(missing_ok=True)
        if isinstance(error, (*driver.damaged, OSError)):
            raise VaultError(
                f"{file} was not brought from schema {version} to {newest} ({why(error)}); it is as it was, "
                "make sure that the disk has room for a copy and the folder can be written to, and open it again"
            ) from error
        raise


def _back_up(file: Path, version: int, driver: Driver) -> Path:
    """A copy of the file beside it, as it was committed last; on disk when this returns. It has the file's key."""
    kept = file.with_name(f"{file.stem}.schema-{version}.db")
    part = kept.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        with closing(driver.connect(file)) as source, closing(driver.connect(part, file.name)) as copy:
            source.backup(copy)
        land(part, kept)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _attach(db: sqlite3.Connection, file: Path, driver: Driver, lock: WriterLock) -> None:
    try:
        db.execute(*driver.attach("side", file))
        db.execute(f"PRAGMA side.page_size = {schema.PAGE_BYTES}")
        if not db.execute("SELECT 1 FROM side.sqlite_master").fetchone():
            with lock.held(transactions.WAIT_S):
                db.execute("BEGIN IMMEDIATE")
                for statement in schema.READINGS:
                    db.execute(schema.in_side_file(statement))
                db.execute("COMMIT")
    except driver.damaged as error:
        raise VaultError(
            f"{file} cannot be used ({why(error)}); close other processes, or remove it: what it holds is made anew"
        ) from error
