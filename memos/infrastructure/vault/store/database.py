"""One SQLite file, and one of vectors attached to it: their tables, their connection, and transactions on them.

Knows what makes a write whole and lasting. Must not know what a cube is, nor what the rows are for.

vectors.db is ten times as large, so that a deletion must not rewrite it. It is never vacuumed: what could tell of a
text lies in pages that are one row's alone, which SQLite clears when they are freed (`READINGS`). After a crash it may
lack what the other has, or have more; then vectors are made anew, or go with the next deletion.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.errors import VaultError
from memos.infrastructure.vault.store.group_sync import GroupSync
from memos.infrastructure.vault.store.on_disk import fsync, land
from memos.infrastructure.vault.store.schema import (
    PAGE_BYTES,
    READINGS,
    SCHEMA_VERSION,
    TABLES,
    UPGRADES,
    in_schema,
    reading,
    require_known,
)
from memos.infrastructure.vault.store.sqlite_file import attach, connect, damaged, module, why
from memos.infrastructure.vault.store.store import Store
from memos.infrastructure.vault.store.writer_lock import WriterLock, lock_of
from memos.plugins.encryption.vault_key import DataKey

log = logging.getLogger("memos")
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")  # of either file
# recursive: a row that is replaced goes as one that is deleted
PRAGMAS_OF_ALL = ("foreign_keys = ON", "recursive_triggers = ON")
_PROOF = 80  # bytes of a page of an encrypted file: SQLCipher's IV and HMAC
IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
LATEST = "(SELECT CASE WHEN at > ? THEN at ELSE ? END FROM clock)"  # of two equal values, `told`, and what is written
WAIT_S = 10.0  # for another process's write
_READERS = 8  # connections that are kept for reading
_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TOLD_S = 1.0  # by how much a clock must go back to be told of; less is its being set by a time server


class Times:
    """The time as a store tells it: never before one that was told or written down, wherever that was."""

    def __init__(self) -> None:
        self.stamped: datetime | None = None  # the latest time that this transaction has stamped
        self._warned, self._latest = False, clock()  # of the clock; the latest time that was told
        self._telling = threading.Lock()

    def now(self, store: Store) -> datetime:
        said = clock()
        latest = self.stamped if store.in_transaction else None
        if latest is None:
            [(kept,)] = store.rows("SELECT at FROM clock")
            latest = moment(kept) if kept else _NEVER
        with self._telling:
            self._latest = max(self._latest, said, latest + timedelta(microseconds=1))
            if (self._latest - said).total_seconds() > _TOLD_S and not self._warned:
                self._warned = True
                log.warning(
                    "the clock says %s, and it was %s before: time goes on from there, and nothing ages until the "
                    "clock is past it; set the clock of this machine",
                    *(said.isoformat(), self._latest.isoformat()),
                )
            return self._latest

    def told(self) -> datetime:
        with self._telling:
            return max(self._latest, clock())

    def stamp(self, store: Store) -> str:
        """Within a transaction, which writes it down at its end."""
        self.stamped = self.now(store)
        return self.stamped.isoformat()


class Database:
    """Thread safe: one connection writes, in turn with those of other processes, and others read without waiting.

    What a transaction wrote is read in its own thread at once; elsewhere after it, which may be just before it is on
    disk. A transaction that has returned is on disk: the log of SQLite keeps their order, and one sync is shared by all
    who wait for one.
    """

    def __init__(self, file: Path, key: DataKey | None = None) -> None:
        """Open the file, made if absent. key: of an encrypted one. Raises VaultError."""
        self._file, self._key, self._lock = file, key, lock_of(file)
        self._db = _connect(file, key, self._lock)
        self._damaged = damaged(key)
        self.reading = reading(_PROOF if key else 0)  # how a row of `readings` is laid out
        self._idle: list[Any] = []  # connections that could read
        self._reading, self._pool = 0, threading.Lock()  # how many do
        self._unread = threading.Condition(self._pool)
        self._closed = False
        try:
            self._db.execute("SELECT n FROM clock").fetchone()  # makes the log, where there is none
            self._sync = GroupSync(file.with_name(f"{file.name}-wal"))
            fsync(file.parent)  # the names of new files
        except OSError as error:
            self._db.close()
            raise VaultError(
                f"{file} cannot be written ({error.strerror}); set vault.path to another folder"
            ) from error
        self._times = Times()
        self._torn = False  # a part of this transaction has failed and was not undone

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

    @property
    def in_transaction(self) -> bool:
        """In this thread."""
        return self._lock.mine and self._db.in_transaction

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile, in this process or another. Raises VaultError after waiting for too long."""
        return self._lock.held(WAIT_S)

    @contextmanager
    def transaction(self, lasting: bool = True) -> Iterator[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part.

        lasting: False for what nobody is told of: it is on disk with the next lasting transaction, and a loss of power
        before that takes it along, whole.
        """
        if self.in_transaction:
            torn = self._torn
            try:
                with self._block("SAVEPOINT block", "RELEASE block", "ROLLBACK TO block", "RELEASE block"):
                    yield
                    if self._torn and not torn:
                        raise self._half()
            except BaseException:
                self._torn = torn  # what was torn in here is undone
                raise
            return
        with self.writing():
            self._require_sound()
            with self._block("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
                self._times.stamped, self._torn = None, False
                yield
                if self._torn:
                    raise self._half()
                if self._times.stamped:
                    self.write("UPDATE clock SET at = ?", self._times.stamped.isoformat())
            number = self._sync.wrote()
        if lasting:
            try:
                self._sync.wait(number)
            except OSError as error:
                raise self._unsound(error) from error

    @contextmanager
    def indivisible(self) -> Iterator[None]:
        """Within a transaction: writes of which none may be missing. What fails in here takes the whole transaction
        along, which is cheaper than a nested one: that copies each page that it changes."""
        try:
            yield
        except BaseException as error:
            self._torn = True
            if isinstance(error, self._damaged):
                raise self._not_written(error) from error
            raise

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

    def _half(self) -> VaultError:
        return VaultError(f"{self._file} was not written: a part of this change had failed before")

    def _not_written(self, error: BaseException) -> VaultError:
        return VaultError(
            f"{self._file} was not written ({why(error)}); nothing of this change is kept, "
            "make sure that the disk has room and no other process holds the vault, and try again"
        )

    def _require_sound(self) -> None:
        try:
            self._sync.require_sound()
        except OSError as error:
            raise self._unsound(error) from error

    def _unsound(self, error: OSError) -> VaultError:
        return VaultError(
            f"{self._file} was written, and the disk did not confirm it ({error.strerror}): the latest changes may be "
            "lost with the power, what was acknowledged before is kept; nothing more is written here, check the disk, "
            "and open the vault again"
        )

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
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

    def _taken(self) -> Any:
        """A connection that reads, for the caller alone until it is given back."""
        with self._pool:
            if self._closed:
                return self._db  # whose error says so
            self._reading += 1
            if self._idle:
                return self._idle.pop()
        try:
            return _connect_reader(self._file, self._key)
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, db: Any) -> None:
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

    def now(self) -> datetime:
        """The time: never before one that was told here, and after all that was written in any process."""
        return self._times.now(self)

    def told(self) -> datetime:
        return self._times.told()

    def stamp(self) -> str:
        """Within a transaction: the time as it is kept, after all that was kept before it."""
        return self._times.stamp(self)

    def floats(self, vector: npt.NDArray[np.float32]) -> bytes:
        return vector.astype("<f4").tobytes()

    def alone(self, leaving: bool = False) -> AbstractContextManager[bool]:
        """As the folder's lock says: it is on no other machine."""
        return nullcontext(True)

    def sizes(self) -> dict[str, int]:
        return {file.name: _size(file) for file in (self._file, _side(self._file))}

    def journals(self) -> dict[str, int]:
        logs = (file.with_name(f"{file.name}-wal") for file in (self._file, _side(self._file)))
        return {file.name: _size(file) for file in logs}

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

    def _at_once(self, sql: str) -> list[tuple[Any, ...]] | None:
        """What this gives; None where it cannot be done. Who reads for long, as a backup does, is not waited for."""
        try:
            self._db.execute("PRAGMA busy_timeout = 0")
            found: list[tuple[Any, ...]] = self._db.execute(sql).fetchall()
            return found
        except self._damaged as error:
            log.debug("%s: %s failed (%s)", self._file, sql, why(error))
            return None
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {WAIT_S * 1e3:.0f}")

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


def moment(at: object) -> datetime:
    """A time as it was written down. Raises VaultError for what is none."""
    try:
        return datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise odd_row(at) from None


def odd_row(value: object) -> VaultError:
    return VaultError(
        f"vault.db holds {value!r:.80} where memos writes nothing of the kind: it was damaged, or changed by another "
        f"program; bring back a copy of the vault folder"
    )


def clock() -> datetime:
    """What the machine's clock says."""
    return datetime.now(timezone.utc)


def _connect(file: Path, key: DataKey | None, lock: WriterLock) -> Any:
    """The connection that writes."""
    try:
        db = _open(file, key)
        try:
            _prepare(db, file, key, lock)
        except BaseException:
            db.close()
            raise
    except module(key).OperationalError as error:
        raise VaultError(
            f"{file} cannot be opened ({error}); it is as it was, make sure that the disk has room, the folder can be "
            "written to and no other process holds the vault, and try again"
        ) from error
    except damaged(key) as error:
        raise VaultError(
            f"{file} is not a vault ({why(error)}); move it away, or set vault.path to another folder"
        ) from error
    return db


def _connect_reader(file: Path, key: DataKey | None) -> Any:
    db = _open(file, key)
    try:
        db.execute(*attach("side", _side(file), key))
        db.execute("PRAGMA query_only = ON")
    except BaseException:
        db.close()
        raise
    return db


def _open(file: Path | str, key: DataKey | None) -> Any:
    return connect(file, key, timeout=WAIT_S, isolation_level=None, check_same_thread=False)


def _side(file: Path) -> Path:
    return file.with_name("vectors.db")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _prepare(db: Any, file: Path, key: DataKey | None, lock: WriterLock) -> None:
    """Make the tables of a new vault; refuse what is no vault before anything is written to it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version or not tables:
        require_known(file, version or SCHEMA_VERSION)
    else:
        raise VaultError(f"{file} is the database of another program; set vault.path to another folder")
    _attach(db, _side(file), key, lock)
    for pragma in (*(f"{of}.{pragma}" for of in ("main", "side") for pragma in PRAGMAS), *PRAGMAS_OF_ALL):
        db.execute(f"PRAGMA {pragma}").fetchall()
    if version < SCHEMA_VERSION:
        with lock.held(WAIT_S):
            _upgrade(db, file, key)
    db.execute(
        """CREATE TEMP TRIGGER vectors_delete AFTER DELETE ON main.vectors BEGIN
           DELETE FROM readings WHERE n = old.n; END"""
    )
    db.execute("SELECT 1 FROM main.sqlite_master").fetchone()  # the log is there from the first read on
    db.execute("PRAGMA main.cache_size = -32768")  # KiB: an index of digests is written all over
    db.execute("SELECT 1 FROM clock").fetchone()  # a file that had no log has one from its first reading
    db.execute("PRAGMA main.synchronous = NORMAL")  # from here on, GroupSync sees to it that commits are on disk


def _upgrade(db: Any, file: Path, key: DataKey | None) -> None:
    """All or nothing. A copy of what was there is kept until a text is deleted, which would lie in it."""
    db.execute("BEGIN IMMEDIATE")
    (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been here first
    copies = []
    try:
        if 0 < version < SCHEMA_VERSION:
            copies.append(_back_up(file, version, key))
        steps = (UPGRADES[n] for n in range(version, SCHEMA_VERSION)) if version else (TABLES,)
        for statement in chain.from_iterable(steps):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        for copy in copies:
            copy.unlink(missing_ok=True)
        if isinstance(error, (*damaged(key), OSError)):
            raise VaultError(
                f"{file} was not brought from schema {version} to {SCHEMA_VERSION} ({why(error)}); it is as it was, "
                "make sure that the disk has room for a copy and the folder can be written to, and open it again"
            ) from error
        raise


def _back_up(file: Path, version: int, key: DataKey | None) -> Path:
    """A copy of the file beside it, as it was committed last; on disk when this returns. It has the file's key."""
    kept = file.with_name(f"{file.stem}.schema-{version}.db")
    part = kept.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        with closing(connect(file, key)) as source, closing(connect(part, key, file.name)) as copy:
            source.backup(copy)
        land(part, kept)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _attach(db: Any, file: Path, key: DataKey | None, lock: WriterLock) -> None:
    try:
        db.execute(*attach("side", file, key))
        db.execute(f"PRAGMA side.page_size = {PAGE_BYTES}")
        if not db.execute("SELECT 1 FROM side.sqlite_master").fetchone():
            with lock.held(WAIT_S):
                db.execute("BEGIN IMMEDIATE")
                for statement in READINGS:
                    db.execute(in_schema(statement, "side"))
                db.execute("COMMIT")
    except damaged(key) as error:
        raise VaultError(
            f"{file} cannot be used ({why(error)}); close other processes, or remove it: what it holds is made anew"
        ) from error
