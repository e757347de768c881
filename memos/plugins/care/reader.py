"""Opens the database of a vault at one moment for readers that must not change a byte of it.

Works beside others who write, after a crash, and on a copy without a lock. Must not know what the rows are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from memos.errors import VaultError
from memos.infrastructure.vault.sqlite.opening import Driver, why
from memos.infrastructure.vault.store import transactions
from memos.infrastructure.vault.store.extension_tables import ExtensionTable
from memos.infrastructure.vault.store.schema import (
    READINGS,
    SCHEMA_VERSION,
    in_one_line,
    in_side_file,
    require_known,
    schema,
)
from memos.infrastructure.vault.store.transactions import Row
from memos.plugins.care import wal_file

_BATCH = 4096  # rows
WAY_OUT = "bring back a backup with `memos vault restore`"
_PAGES = 1 << 14  # copied at once


class CannotRead(VaultError):
    """The file is damaged, or something else has put itself in its place."""


class VaultReader:
    """One transaction that reads; not thread safe. `side_problem`: why vectors.db cannot be read, or ""."""

    padding = ", head, rest"  # columns of `readings` that nothing stands in
    way_out = f"vault.db: {WAY_OUT}"

    def __init__(self, folder: Path, alone: bool, driver: Driver) -> None:
        """alone: nobody is known to have the vault open; one who opens it meanwhile may spoil what is read here.

        Raises VaultError for a file that cannot be read, or is of another schema.
        """
        self.file, self.side_problem, self._alone = folder / "vault.db", "", alone
        self._driver, self._damaged = driver, driver.damaged
        side = folder / "vectors.db"
        if not self.file.is_file():
            raise VaultError(
                f"{folder} holds no vault: there is no {self.file.name}; name the folder of a vault or a backup"
            )
        options = {"uri": True, "timeout": transactions.WAIT_S, "isolation_level": None}
        self._db = driver.connect(_uri(self.file, alone), self.file.name, **options)
        try:
            self._db.execute("BEGIN")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            require_known(self.file, version)
            if version < SCHEMA_VERSION:
                raise VaultError(
                    f"{self.file} has schema {version}, which is older than this memos; open the vault once"
                )
            self._db.execute("COMMIT")
            self._attach(side)
            self._db.execute("BEGIN")
            self._db.execute("SELECT count(*) FROM clock").fetchone()  # from here on it stays as it is
            self._db.execute("SELECT count(*) FROM side.readings WHERE n < 0").fetchone()
        except self._damaged as error:
            self._db.close()
            raise self._unreadable(error) from error
        except VaultError:
            self._db.close()
            raise

    def _unreadable(self, error: BaseException) -> CannotRead:
        return CannotRead(f"{self.file} cannot be read ({why(error)}); {WAY_OUT}")

    def _attach(self, side: Path) -> None:
        try:
            if not side.is_file():
                raise self._damaged[0]("it is missing")
            self._db.execute(*self._driver.attach("side", _uri(side, self._alone), side.name))
            self._db.execute("SELECT count(*) FROM side.readings WHERE n < 0").fetchone()
        except self._damaged as error:
            self.side_problem = f"{side} cannot be read ({why(error)}): what it holds is made anew"
            if any(name == "side" for _, name, _ in self._db.execute("PRAGMA database_list")):
                self._db.execute("DETACH side")
            self._db.execute(*self._driver.attach("side", ":memory:"))
            for statement in READINGS:
                self._db.execute(in_side_file(statement))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> VaultReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Raises VaultError."""
        return list(self.each(sql, *values))

    def each(self, sql: str, *values: object) -> Iterator[Row]:
        """The same, some at a time. Raises VaultError."""
        try:
            found = self._db.execute(sql, values)
            while batch := found.fetchmany(_BATCH):
                yield from batch
        except self._damaged as error:
            raise self._unreadable(error) from error

    def structure(self, extensions: Iterable[ExtensionTable]) -> Iterator[str]:
        """How tables, and what their rows refer to, differ from what memos makes. Raises VaultError."""
        for table, _, parent, _ in self.rows("PRAGMA main.foreign_key_check"):
            yield f"vault.db: a row of {table} refers to no {parent}"
        rows = self.rows("SELECT name, sql FROM main.sqlite_master WHERE sql IS NOT NULL")
        there = {(name, in_one_line(sql)) for name, sql in rows}
        brought = {made for table in extensions for made in table.made}
        for name, _ in sorted(there ^ (schema() | brought)):
            yield f"vault.db: {name} is not as this memos makes it"

    def damage(self, of: str) -> list[str]:
        """What is wrong with the structure of the file of "main" or "side", in words."""
        name = self.file.name if of == "main" else "vectors.db"
        try:
            found = [
                line for check in self._driver.checks for (line,) in self.each(f"PRAGMA {of}.{check}") if line != "ok"
            ]
        except CannotRead as error:  # where the check itself cannot go on
            return [str(error)]
        return [f"{name}: {line}" for line in found]

    def copy(self, schema: str, target: Path, show: Callable[[int, int], None]) -> None:
        """Copy the file of "main" or "side" as it is now, with its key, without a sync. Raises VaultError.

        show: (pages done, of how many).
        """
        try:
            with closing(self._driver.connect(target, isolation_level=None)) as copy:
                copy.execute("PRAGMA synchronous = OFF")
                progress = lambda _, left, pages: show(pages - left, pages)  # noqa: E731
                self._db.backup(copy, pages=_PAGES, progress=progress, name=schema, sleep=0)
        except self._damaged as error:
            raise VaultError(
                f"{self.file} was not copied to {target} ({why(error)}); see `memos vault check`"
            ) from error


def _uri(file: Path, alone: bool) -> str:
    """A file without a log is read without making one, if nobody writes to it; else log and index are shared."""
    quiet = alone and wal_file.is_empty(file) and not file.with_name(f"{file.name}-shm").exists()
    return f"file:{quote(str(file.absolute()))}?mode=ro{'&immutable=1' if quiet else ''}"
