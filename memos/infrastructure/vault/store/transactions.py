"""What a vault asks of the database that holds its rows; turns to write, and a time that never goes back.

There is one dialect of SQL, SQLite's: a file runs it as it is, and a server that several machines share translates it.
Threads and processes get their turn to write in order. Must not know what the rows are for.

Between processes of one machine, two files are locked in turn, `<file>-next` while one waits for `<file>-turn`, so that
one who has just written queues behind those who wait. The system gives up the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memos.errors import VaultError

WAIT_S = 10.0  # for another process's write
IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
LATEST = "(SELECT CASE WHEN at > ? THEN at ELSE ? END FROM clock)"  # of `now`, given twice, and what is written down
Row = tuple[Any, ...]  # as a statement names its columns


class WriterLock:
    """One writer at a time, of all threads and processes, nearly in the order of asking; it may ask again within."""

    def __init__(self, name: str, others: Callable[[float], AbstractContextManager[None]]) -> None:
        """name: of what is written. others: keeps other processes out, which it waits for so many seconds."""
        self._name, self._others = name, others
        self._mutex = threading.Lock()
        self._queue: deque[threading.Lock] = deque()  # of threads: whose turn it is, and then those who wait
        self._owner = 0

    @property
    def mine(self) -> bool:
        """True in the thread whose turn it is."""
        return self._owner == threading.get_ident()

    @contextmanager
    def held(self, wait_s: float) -> Iterator[None]:
        """Raises VaultError after so many seconds of waiting."""
        if self.mine:
            yield
            return
        until = time.monotonic() + wait_s
        with self.among_threads(wait_s), self._others(max(0.0, until - time.monotonic())):
            try:
                self._owner = threading.get_ident()
                yield
            finally:
                self._owner = 0

    @contextmanager
    def among_threads(self, wait_s: float) -> Iterator[None]:
        """No other thread of this process writes; another process may. -1: wait for as long as it takes."""
        if self.mine:
            yield
            return
        turn = threading.Lock()
        with self._mutex:
            if self._queue:
                turn.acquire()  # until the one before gives it up
            self._queue.append(turn)
        try:
            if not turn.acquire(timeout=wait_s):
                raise too_long(self._name, "another thread of this process")
            yield
        finally:  # also on Ctrl-C: those behind must not wait for one who is gone
            with self._mutex:
                first = self._queue[0] is turn
                self._queue.remove(turn)
                if first and self._queue:
                    self._queue[0].release()


def lock_of(file: Path) -> WriterLock:
    """Of a file of this machine."""
    return WriterLock(str(file), lambda wait_s: _turn_of(file, wait_s))


@contextmanager
def _turn_of(file: Path, wait_s: float) -> Iterator[None]:
    """The turn of a process among those of this machine. Raises VaultError after so many seconds of waiting."""
    next_up, turn = (file.with_name(f"{file.name}-{name}") for name in ("next", "turn"))
    try:
        try:
            lock = _lock(next_up, turn, fcntl.LOCK_NB)
        except BlockingIOError:
            lock = _waited(file, next_up, turn, wait_s)
    except OSError as error:
        raise VaultError(
            f"{turn} cannot be locked ({error.strerror}); nothing was written, make sure that the folder can be "
            "written to, and try again"
        ) from error
    try:
        yield
    finally:
        _unlock(lock)


def _waited(file: Path, next_up: Path, turn: Path, wait_s: float) -> int:
    """Waiting in order cannot be given up, so another thread does it."""
    later: futures.Future[int] = futures.Future()
    threading.Thread(target=_lock_later, args=(next_up, turn, later), daemon=True).start()
    try:
        return later.result(wait_s)
    except futures.TimeoutError:
        later.add_done_callback(_unlock_late)
        raise too_long(str(file), "another process") from None
    except BaseException:  # Ctrl-C
        later.add_done_callback(_unlock_late)
        raise


def too_long(name: str, who: str, finder: str = "`fuser` or `lsof`") -> VaultError:
    """finder: what names who it is."""
    return VaultError(
        f"{name} is locked: {who} has been writing for too long; nothing of this change is kept, end or resume it "
        f"({finder} names it), and try again"
    )


def _lock(next_up: Path, turn: Path, how: int = 0) -> int:
    """The open file that holds the lock. Raises BlockingIOError, OSError."""
    waiting = os.open(next_up, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(waiting, fcntl.LOCK_EX | how)
        lock = os.open(turn, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | how)
        except BaseException:
            os.close(lock)
            raise
    finally:
        _unlock(waiting)
    return lock


def _lock_later(next_up: Path, turn: Path, later: futures.Future[int]) -> None:
    try:
        later.set_result(_lock(next_up, turn))
    except OSError as error:
        later.set_exception(error)


def _unlock(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # closing alone leaves it to a child that was forked meanwhile
    os.close(lock)


def _unlock_late(later: futures.Future[int]) -> None:
    if later.exception() is None:
        _unlock(later.result())


log = logging.getLogger("memos")
_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WARN_S = 1.0  # by how much a clock must go back for a warning; less is its being set by a time server


class Rows(Protocol):
    """What can be asked, and not written to."""

    def rows(self, sql: str, *values: object) -> list[Row]: ...


class Store(Rows, Protocol):
    """Thread safe: one writes at a time, of all threads, processes and machines, and others read without waiting.

    What a transaction wrote is read in its own thread at once; elsewhere after it. A transaction that has returned is
    lasting. All raise VaultError where the database is damaged, gone or in the way.
    """

    reading: str  # what stands between "INSERT OR REPLACE INTO readings" and what is in the row, to be followed by ")"

    @property
    def in_transaction(self) -> bool:
        """In this thread."""

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile."""

    def transaction(self, lasting: bool = True) -> AbstractContextManager[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part.

        lasting: False for what nobody is told of: it is lasting with the next lasting transaction.
        """

    def indivisible(self) -> AbstractContextManager[None]:
        """Within a transaction: writes of which none may be missing; what fails in here takes the whole along."""

    def alone(self, leaving: bool = False) -> AbstractContextManager[bool]:
        """False if somebody on another machine has it open; nobody there can open or leave it within the block.

        leaving: it is given up with the block.
        """

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""

    def require_room(self) -> None:
        """For something new. Raises VaultError for a disk that has room for reading and deleting alone."""
        return None  # a server sees to its own

    def define(self, statement: str) -> None:
        """Within a transaction: make a table or an index, as a statement of SQLite's says."""

    def floats(self, vector: npt.NDArray[np.float32]) -> object:
        """A vector as a value to write; it is read as its little-endian bytes."""

    def now(self) -> datetime:
        """The time: never before one that was told here; within a transaction, after all that was written anywhere."""

    def seconds(self) -> float:
        """The clock of the database itself, which all who share it go by, in seconds since 1970."""

    def heard(self, at: str) -> None:
        """A time that was read from `clock`: none before it is told here any more."""

    def stamp(self) -> str:
        """Within a transaction: the time as it is kept, after all that was kept before it."""

    def sizes(self) -> dict[str, int]:
        """How many bytes it takes, by place; first that of texts."""

    def journals(self) -> dict[str, int]:
        """How many bytes its logs take, by place; of a server, they are its own."""

    def shrink(self) -> None:
        """Give back the memory of what was read or written before, and is read again when it is needed."""

    def vacuum(self) -> bool:
        """Leave nothing of a deleted text where rows lie; False while somebody is in the way."""

    def clear_logs(self) -> bool:
        """Leave nothing in the logs that are its own; False while somebody is in the way."""

    def compact(self) -> None:
        """Give the space of what was deleted back to the disk."""

    def close(self) -> None: ...


class Transactions(Store):
    """What every store has in common: nested transactions that land together or not at all, and the time in them.

    What is written down of the time is read once a transaction; else this process goes by what it knows and by the
    machine's clock.
    """

    def __init__(self, name: str, lock: WriterLock, damaged: tuple[type[Exception], ...]) -> None:
        """name: of what is written. damaged: the errors of the database."""
        self.name, self._lock, self._damaged = name, lock, damaged
        self._torn = False  # a part of this transaction has failed and was not undone
        self._stamped: datetime | None = None  # the latest time that this transaction has stamped
        self._written: datetime | None = None  # what this transaction found written down
        self._known = _NEVER  # the latest time that is known to be written down
        self._warned, self._latest = False, clock()  # of the clock; the latest time that was told
        self._telling = threading.Lock()

    @abstractmethod
    def _outermost(self, lasting: bool) -> AbstractContextManager[None]:
        """A transaction in turn with others, at whose end `_stamped` is written down."""

    @abstractmethod
    def _nested(self) -> AbstractContextManager[None]:
        """A part of a transaction, which is undone where it raises."""

    @abstractmethod
    def _not_written(self, error: BaseException) -> VaultError: ...

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile, in this process or another. Raises VaultError after waiting for too long."""
        return self._lock.held(WAIT_S)

    @contextmanager
    def transaction(self, lasting: bool = True) -> Iterator[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part.

        lasting: False for what nobody is told of: it is lasting with the next lasting transaction, and a loss of power
        before that takes it along, whole.
        """
        nested, torn = self.in_transaction, self._torn
        try:
            with self._nested() if nested else self._outermost(lasting):
                if not nested:
                    self._stamped = self._written = None
                    self._torn = torn = False
                yield
                if self._torn and not torn:
                    raise self._half()
        except BaseException:
            if nested:
                self._torn = torn  # what was torn in here is undone
            raise

    def _half(self) -> VaultError:
        return VaultError(f"{self.name} was not written: a part of this change had failed before")

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

    def now(self) -> datetime:
        if not self.in_transaction:
            return self._told(self._known)
        if self._written is None:
            [(at,)] = self.rows("SELECT at FROM clock")
            self._written = moment(at) if at else _NEVER
        return self._told(self._stamped or self._written)

    def heard(self, at: str) -> None:
        if at:
            self._known = max(self._known, moment(at))
            self._written = self._written or self._known

    def stamp(self) -> str:
        self._stamped = self._known = self.now()
        return self._stamped.isoformat()

    def _told(self, after: datetime) -> datetime:
        said = clock()
        with self._telling:
            if after is not _NEVER:
                after += timedelta(microseconds=1)
            self._latest = max(self._latest, said, after)
            if (self._latest - said).total_seconds() > _WARN_S and not self._warned:
                self._warned = True
                log.warning(
                    "the clock says %s, and it was %s before: time goes on from there, and nothing ages until the "
                    "clock is past it; set the clock of this machine",
                    *(said.isoformat(), self._latest.isoformat()),
                )
            return self._latest


def clock() -> datetime:
    """What the machine's clock says."""
    return datetime.now(timezone.utc)


def moment(at: object) -> datetime:
    """A time as it was written down. Raises VaultError for what is none."""
    try:
        return datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise odd_row(at) from None


def odd_row(value: object) -> VaultError:
    """The error for a row that memos would not have written."""
    return VaultError(
        f"vault.db holds {value!r:.80} where memos writes nothing of the kind: it was damaged, or changed by another "
        f"program; bring back a copy of the vault folder"
    )


class Table:
    """Rows of one kind."""

    def __init__(self, db: Store) -> None:
        self._db = db
