"""One SQLite file: its tables, its connection, and transactions on it.

Knows what makes a write whole and lasting. Must not know what a cube is, nor what the rows are for.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from memos.errors import VaultError

SCHEMA = (
    "CREATE TABLE versions (id TEXT, version INTEGER, json TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (id, version))",
    # finds the cubes that refer to a blob
    "CREATE INDEX versions_blob ON versions (json_extract(json, '$.payload.sha256'))",
    """CREATE TABLE heads (id TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL, form TEXT NOT NULL,
       segment TEXT NOT NULL, user_id TEXT NOT NULL, FOREIGN KEY (id, version) REFERENCES versions (id, version))""",
    """CREATE TABLE transitions (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       state TEXT NOT NULL, at TEXT NOT NULL, why TEXT NOT NULL)""",
    "CREATE INDEX transitions_id ON transitions (id)",
    """CREATE TABLE usage (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, recalls INTEGER NOT NULL,
       last TEXT NOT NULL)""",
    # of current versions only; a source cannot be deleted while a row here names it
    """CREATE TABLE sources (derived_id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       source_id TEXT NOT NULL, source_version INTEGER NOT NULL, PRIMARY KEY (derived_id, source_id),
       FOREIGN KEY (source_id, source_version) REFERENCES versions (id, version))""",
    "CREATE INDEX sources_source ON sources (source_id, source_version)",
    """CREATE TABLE vectors (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, version INTEGER NOT NULL,
       embedder TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (id, embedder))""",
    """CREATE TABLE jobs (id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL,
       started TEXT NOT NULL, ended TEXT, note TEXT NOT NULL DEFAULT '')""",
    # AUTOINCREMENT remembers the highest n, so that rows cut off at the end are missed
    """CREATE TABLE audit (n INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL,
       action TEXT NOT NULL, target TEXT NOT NULL, allowed INTEGER NOT NULL, why TEXT NOT NULL,
       prev TEXT NOT NULL, hash TEXT NOT NULL)""",
    # a row for each deleted blob, or text (NULL), whose bytes may still lie on disk: a debt that survives a crash
    "CREATE TABLE erasures (n INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT)",
)
# What each later version adds to the one before it; a vault is brought up to date when it is opened.
UPGRADES = (
    # what was measured on a host, by its digest
    ("CREATE TABLE cards (host TEXT PRIMARY KEY, json TEXT NOT NULL, at TEXT NOT NULL)",),
    # the order in which cubes last changed, and when one was last deleted: what an index reads to keep up
    (
        "CREATE TABLE changes (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, n INTEGER NOT NULL)",
        "CREATE INDEX changes_n ON changes (n)",
        "INSERT INTO changes SELECT id, 1 FROM heads",
        "CREATE TABLE clock (n INTEGER NOT NULL, deleted INTEGER NOT NULL)",
        "INSERT INTO clock VALUES (1, 0)",
        *(
            f"""CREATE TRIGGER changes_{event.lower()} AFTER {event} ON heads BEGIN
                UPDATE clock SET n = n + 1;
                DELETE FROM changes WHERE id = new.id;
                INSERT INTO changes SELECT new.id, n FROM clock; END"""
            for event in ("INSERT", "UPDATE")
        ),
        "CREATE TRIGGER changes_delete AFTER DELETE ON heads BEGIN UPDATE clock SET n = n + 1, deleted = n + 1; END",
        # finds a text that is there already
        "CREATE INDEX versions_text ON versions (substr(json_extract(json, '$.payload.text'), 1, 64))",
        "CREATE INDEX heads_segment ON heads (segment)",
        # what else a vector was made of: "id:version id:version"
        "ALTER TABLE vectors ADD COLUMN around TEXT NOT NULL DEFAULT ''",
        "DELETE FROM vectors",  # they are made anew, with those of their tokens
        # of its tokens, [tokens, width] int8
        "ALTER TABLE vectors ADD COLUMN tokens BLOB NOT NULL DEFAULT x''",
        "CREATE INDEX vectors_around ON vectors (around) WHERE around != ''",
    ),
)
SCHEMA_VERSION = 1 + len(UPGRADES)
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
WAIT_S = 10.0  # for another process's write


class Database:
    """Thread safe: one connection behind `lock`. A write that returned outside a transaction is on disk."""

    def __init__(self, file: Path) -> None:
        """Open the file, made if absent. Raises VaultError."""
        self.lock = threading.RLock()
        self._file, self._db = file, _connect(file)

    def close(self) -> None:
        with self.lock:
            self._db.close()

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part."""
        with self.lock:
            outermost = not self._db.in_transaction
            begin, end = ("BEGIN IMMEDIATE", "COMMIT") if outermost else ("SAVEPOINT block", "RELEASE block")
            undo = ("ROLLBACK",) if outermost else ("ROLLBACK TO block", "RELEASE block")
            try:
                self._db.execute(begin)
                try:
                    yield
                    self._db.execute(end)
                except BaseException:  # whatever it was, even Ctrl-C, nothing half-written stays
                    if self._db.in_transaction:  # on a full disk SQLite has already rolled back
                        for statement in undo:
                            self._db.execute(statement)
                    raise
            except sqlite3.DatabaseError as error:
                raise VaultError(
                    f"{self._file} was not written ({error}); nothing of this change is kept, "
                    "make sure that the disk has room and no other process holds the vault, and try again"
                ) from error

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise VaultError(
                    f"{self._file} cannot be read ({error}); if it is damaged, bring back a copy of the vault folder"
                ) from error

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""
        return self._db.execute(sql, values).rowcount

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""
        self._db.executemany(sql, rows)

    def scrub(self, text: bool) -> bool:
        """Clear the write-ahead log, and free space if a text was deleted; False while another process is in the way.

        secure_delete alone is not enough: where SQLite balances its pages it leaves copies of rows in their gaps
        (measured: about 1 deleted text in 600 could still be read), so a deleted text costs a VACUUM.
        """
        try:
            if text:
                self._db.execute("VACUUM")
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:
            return False
        return not busy

    def damage(self) -> list[str]:
        """What is wrong with the file, in words; where there is any, no row can be trusted."""
        try:
            found = [line for (line,) in self.rows("PRAGMA integrity_check") if line != "ok"]
        except VaultError as error:  # where the check itself cannot go on
            return [str(error)]
        return [f"{self._file.name}: {line}" for line in found]

    def dangling(self) -> list[str]:
        """Rows that refer to rows which are not there."""
        rows = self.rows("PRAGMA foreign_key_check")
        return [f"{self._file.name}: a row of {table} refers to no {parent}" for table, _, parent, _ in rows]


def now() -> str:
    """The time as it is kept."""
    return datetime.now(timezone.utc).isoformat()


def _connect(file: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(file, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, file)
        except (sqlite3.DatabaseError, VaultError):
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        raise VaultError(
            f"{file} is not a vault ({error}); move it away, or set vault.path to another folder"
        ) from error
    return db


def _prepare(db: sqlite3.Connection, file: Path) -> None:
    """Make the tables of a new vault; refuse what is no vault before anything is written to it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version > SCHEMA_VERSION:
        raise VaultError(f"{file} has schema {version}, this memos reads up to {SCHEMA_VERSION}; upgrade memos")
    if version == 0 and tables:
        raise VaultError(f"{file} is the database of another program; set vault.path to another folder")
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}").fetchall()
    if version < SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been here first
        for statement in chain.from_iterable((SCHEMA, *UPGRADES)[version:]):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
