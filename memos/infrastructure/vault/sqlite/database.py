"""The SQLite file of a vault with its attached file of vectors: connections, and transactions on them.

Knows what makes a write whole and lasting. Must not know what a cube is, nor what the rows are for.

vectors.db is ten times as large, so that a deletion must not rewrite it. It is never vacuumed: what could tell of a
text lies in pages that are one row's alone, which SQLite clears when they are freed (`schema.READINGS`). After a crash
it may lack what the other has, or have more; then vectors are made anew, or go with the next deletion.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memos.errors import VaultError
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER, Driver, opened, opened_to_read, side_of, why
from memos.infrastructure.vault.store import reserve, transactions
from memos.infrastructure.vault.store.on_disk import fsync, size_of
from memos.infrastructure.vault.store.schema import reading
from memos.infrastructure.vault.store.transactions import Row, Transactions, lock_of

log = logging.getLogger("memos")
_READERS = 8  # connections that are kept for reading


class Database(Transactions):
    """Thread safe: one connection writes, in turn with those of other processes, and others read without waiting.

    What a transaction wrote is read in its own thread at once; elsewhere after it, which may be just before it is on
    disk. A transaction that has returned is on disk: the log of SQLite keeps their order, and one sync is shared by all
    who wait for one.
    """

    def __init__(self, file: Path, driver: Driver = PLAIN_DRIVER) -> None:
        """Open the file, made if absent. Raises VaultError."""
        super().__init__(str(file), lock_of(file), driver.damaged)
        self._file, self._driver = file, driver
        reserve.give_up_if_full(file.parent)  # opening writes, too
        self._db = opened(file, driver, self._lock)
        self.reading = reading(driver.reserved_bytes)  # how a row of `readings` is laid out
        self._idle: list[sqlite3.Connection] = []  # connections that could read
        self._reading, self._pool = 0, threading.Lock()  # how many do
        self._unread = threading.Condition(self._pool)
        self._closed = False
        try:
            [at] = self._db.execute("SELECT at FROM clock").fetchone()  # makes the log, where there is none
            self._sync = GroupSync(file.with_name(f"{file.name}-wal"))
            fsync(file.parent)  # the names of new files
        except OSError as error:
            self._db.close()
            raise VaultError(
                f"{file} cannot be written ({error.strerror}); set vault.path to another folder"
            ) from error
        self.heard(at)

    def close(self) -> None:
        with self._lock.among_threads(-1):
            if self._closed:
                return
            with self._unread:
                self._closed = True
                self._unread.wait_for(lambda: self._reading == 0)  # the last connection clears the logs
            while self._idle:
                self._idle.pop().close()
            self._sync.close()
            self._db.close()
            reserve.take_back(self._file.parent)

    @property
    def in_transaction(self) -> bool:
        """In this thread."""
        return self._lock.mine and self._db.in_transaction

    @contextmanager
    def _outermost(self, lasting: bool) -> Iterator[None]:
        with self.writing():
            with self._on_disk():
                self._sync.require_sound()
            reserve.give_up_if_full(self._file.parent)
            with self._block("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
                yield
                if self._stamped:
                    self.write("UPDATE clock SET at = ?", self._stamped.isoformat())
            number = self._sync.wrote()
        if lasting:
            with self._on_disk():
                self._sync.wait(number)

    def _nested(self) -> AbstractContextManager[None]:
        return self._block("SAVEPOINT block", "RELEASE block", "ROLLBACK TO block", "RELEASE block")

    @contextmanager
    def _block(self, begin: str, end: str, *undo: str) -> Iterator[None]:
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
        except self._damaged as error:
            raise self._not_written(error) from error

    def _not_written(self, error: BaseException) -> VaultError:
        return VaultError(
            f"{self._file} was not written ({why(error)}); nothing of this change is kept, "
            "make sure that the disk has room and no other process holds the vault, and try again"
        )

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        """Raises VaultError where what was written did not get there."""
        try:
            yield
        except OSError as error:
            raise VaultError(
                f"{self._file} was written, and the disk did not confirm it ({error.strerror}): the latest changes may "
                "be lost with the power, what was acknowledged before is kept; nothing more is written here, check the "
                "disk, and open the vault again"
            ) from error

    def rows(self, sql: str, *values: object) -> list[Row]:
        try:
            if self._lock.mine:
                return self._db.execute(sql, values).fetchall()
            db = self._taken()
            try:
                return db.execute(sql, values).fetchall()
            finally:
                self._give_back(db)
        except self._damaged as error:
            raise VaultError(
                f"{self._file} cannot be read ({why(error)}); if it is damaged, bring back a copy of the vault folder"
            ) from error

    def _taken(self) -> sqlite3.Connection:
        """A connection that reads, for the caller alone until it is given back."""
        with self._pool:
            if self._closed:
                return self._db  # whose error says so
            self._reading += 1
            if self._idle:
                return self._idle.pop()
        try:
            return opened_to_read(self._file, self._driver)
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, db: sqlite3.Connection | None) -> None:
        with self._pool:
            if db is self._db:
                return
            self._reading -= 1
            if db and len(self._idle) < _READERS:
                self._idle.append(db)
            elif db:
                db.close()
            if self._closed:  # somebody waits for the last of them
                self._unread.notify_all()

    def seconds(self) -> float:
        return time.time()

    def require_room(self) -> None:
        reserve.require(self._file.parent)

    def floats(self, vector: npt.NDArray[np.float32]) -> bytes:
        return vector.astype("<f4").tobytes()

    def alone(self, leaving: bool = False) -> AbstractContextManager[bool]:
        """As the folder's lock says: it is on no other machine."""
        return nullcontext(True)

    def sizes(self) -> dict[str, int]:
        return {file.name: size_of(file) for file in (self._file, side_of(self._file))}

    def journals(self) -> dict[str, int]:
        logs = (file.with_name(f"{file.name}-wal") for file in (self._file, side_of(self._file)))
        return {file.name: size_of(file) for file in logs}

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""
        return self._db.execute(sql, values).rowcount

    def define(self, statement: str) -> None:
        """Within a transaction: make a table or an index."""
        self._db.execute(statement)

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""
        self._db.executemany(sql, rows)

    def shrink(self) -> None:
        """Of each connection the pages that it holds, of the one that writes up to 32 MiB."""
        with self._lock.among_threads(-1), self._pool:
            for db in () if self._closed else (self._db, *self._idle):
                db.execute("PRAGMA shrink_memory")

    def vacuum(self) -> bool:
        """Leave nothing of a deleted text in vault.db; False while another process is in the way.

        secure_delete alone is not enough: where SQLite balances its pages it leaves copies of rows in their gaps
        (measured: 2 of 7,500 deleted facts could still be read, from their index), so a deleted text costs a VACUUM,
        but not of the vectors.
        """
        for copy in self._file.parent.glob(f"{self._file.stem}.schema-*"):
            copy.unlink(missing_ok=True)
        return self._at_once("VACUUM main") is not None

    def clear_logs(self) -> bool:
        """Leave nothing in the write-ahead logs; False while another process is in the way."""
        done = self._at_once("PRAGMA wal_checkpoint(TRUNCATE)")
        return done is not None and not done[0][0]

    def _at_once(self, sql: str) -> list[Row] | None:
        """What this gives; None where it cannot be done. Who reads for long, as a backup does, is not waited for."""
        try:
            self._db.execute("PRAGMA busy_timeout = 0")
            return self._db.execute(sql).fetchall()
        except self._damaged as error:
            log.debug("%s: %s failed (%s)", self._file, sql, why(error))
            return None
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {transactions.WAIT_S * 1e3:.0f}")

    def compact(self) -> None:
        """Give the space of what was deleted back to the disk. Raises VaultError if somebody is in the way."""
        with self.writing():
            try:
                for name in ("main", "side"):
                    self._db.execute(f"VACUUM {name}")
                (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except self._damaged as error:
                raise VaultError(
                    f"{self._file} was not compacted ({why(error)}); it needs as much free disk as it is large, and "
                    "nobody else who writes: close other processes, and try again"
                ) from error
        if busy:
            raise VaultError(f"{self._file} is read by another process, so its log stays; close that, and try again")


class GroupSync:
    """Commits are numbered by `wrote`. Who waits for one first syncs the file for all that were written by then; who
    comes meanwhile waits for the next."""

    def __init__(self, file: Path) -> None:
        """Raises OSError."""
        self._file = os.open(file, os.O_RDWR)
        self._changed = threading.Condition()
        self._written = self._synced = 0
        self._syncing = False
        self._failure: OSError | None = None

    def wrote(self) -> int:
        """The number of what was just written; called in the order of writing."""
        with self._changed:
            self._written += 1
            return self._written

    def wait(self, number: int) -> None:
        """Return when what has this number is on disk. Raises the OSError of a sync that covered it."""
        synced, failure, mine = 0, None, False
        try:
            with self._changed:
                while self._syncing and self._synced < number:
                    self._changed.wait()
                if self._synced >= number:
                    return
                self.require_sound()
                mine = self._syncing = True  # whatever comes from here on, even Ctrl-C, others get their turn
                upto = self._written
            os.fdatasync(self._file)
            synced = upto
        except OSError as error:
            failure = error
            raise
        finally:
            if mine:
                with self._changed:
                    self._syncing = False
                    self._synced = max(self._synced, synced)
                    self._failure = self._failure or failure
                    self._changed.notify_all()

    def require_sound(self) -> None:
        """Raises the OSError of a sync that failed: the system forgets what it could not write, so that a later one
        says nothing of it."""
        if self._failure is not None:
            raise OSError(self._failure.errno, self._failure.strerror)

    def close(self) -> None:
        """Once nothing more is written. Who still waits is served first."""
        with suppress(OSError):  # it is told to those who wait
            self.wait(self._written)
        os.close(self._file)
