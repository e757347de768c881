"""Gives threads and processes their turn to write, in order, and tells a time that never goes back.

Must not know what is written.

Between processes of one machine, two files are locked in turn, `<file>-next` while one waits for `<file>-turn`, so that
one who has just written queues behind those who wait. The system gives up the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import VaultError

if TYPE_CHECKING:
    from memos.infrastructure.vault.store.store import Row

WAIT_S = 10.0  # for another process's write


class WriterLock:
    """One writer at a time, of all threads and processes, nearly in the order of asking; it may ask again within."""

    def __init__(self, name: str, others: Callable[[float], AbstractContextManager[None]]) -> None:
        """name: of what is written. others: keeps other processes out, which it waits for so many seconds."""
        self._name, self._others = name, others
        self._mutex = threading.Lock()
        self._queue: deque[threading.Lock] = deque()  # of threads; the first is let in by the one before it
        self._taken = False
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
        self._enter(wait_s)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, wait_s: float) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._queue.append(turn)
        try:
            came = turn.acquire(timeout=wait_s)
        except BaseException:  # Ctrl-C: those behind must not wait for one who is gone
            self._give_up(turn)
            raise
        if not came:
            self._give_up(turn)
            raise too_long(self._name, "another thread of this process")

    def _give_up(self, turn: threading.Lock) -> None:
        with self._mutex:
            if turn in self._queue:
                self._queue.remove(turn)
                return
        self._leave()  # its turn came just now

    def _leave(self) -> None:
        with self._mutex:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False


def lock_of(file: Path) -> WriterLock:
    """Of a file of this machine."""
    return WriterLock(str(file), FileTurn(file).held)


class FileTurn:
    """The turn of a process among those of this machine."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._next, self._turn = (file.with_name(f"{file.name}-{name}") for name in ("next", "turn"))

    @contextmanager
    def held(self, wait_s: float) -> Iterator[None]:
        """Raises VaultError after so many seconds of waiting."""
        lock = self._lock(wait_s)
        try:
            yield
        finally:
            _unlock(lock)

    def _lock(self, wait_s: float) -> int:
        try:
            try:
                return _lock(self._next, self._turn, fcntl.LOCK_NB)
            except BlockingIOError:
                return self._waited(wait_s)
        except OSError as error:
            raise VaultError(
                f"{self._turn} cannot be locked ({error.strerror}); nothing was written, make sure that the folder "
                "can be written to, and try again"
            ) from error

    def _waited(self, wait_s: float) -> int:
        """Waiting in order cannot be given up, so another thread does it."""
        later: futures.Future[int] = futures.Future()
        threading.Thread(target=_lock_later, args=(self._next, self._turn, later), daemon=True).start()
        try:
            return later.result(wait_s)
        except futures.TimeoutError:
            later.add_done_callback(_unlock_late)
            raise too_long(str(self._file), "another process") from None
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


class Times:
    """The times of one open store. What is written is read once a transaction; else this process goes by what it knows
    and by the machine's clock."""

    def __init__(self) -> None:
        self.stamped: datetime | None = None  # the latest time that this transaction has stamped
        self._written: datetime | None = None  # what this transaction found written down
        self._known = _NEVER  # the latest time that is known to be written down
        self._warned, self._latest = False, clock()  # of the clock; the latest time that was told
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A transaction begins."""
        self.stamped = self._written = None

    def now(self, store: Transactions) -> datetime:
        if not store.in_transaction:
            return self._told(self._known)
        if self._written is None:
            [(at,)] = store.rows("SELECT at FROM clock")
            self._written = moment(at) if at else _NEVER
        return self._told(self.stamped or self._written)

    def stamp(self, store: Transactions) -> str:
        """Within a transaction, which writes it down at its end."""
        self.stamped = self._known = self.now(store)
        return self.stamped.isoformat()

    def heard(self, at: str) -> None:
        """A time that was read where it is written down: all that is told from here on is after it."""
        if at:
            self._known = max(self._known, moment(at))
            self._written = self._written or self._known

    def _told(self, after: datetime) -> datetime:
        said = clock()
        with self._lock:
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


class Transactions(ABC):
    """What every store has in common: nested transactions that land together or not at all, and the time in them."""

    def __init__(self, name: str, lock: WriterLock, damaged: tuple[type[Exception], ...]) -> None:
        """name: of what is written. damaged: the errors of the database."""
        self.name, self._lock, self._damaged = name, lock, damaged
        self._times = Times()
        self._torn = False  # a part of this transaction has failed and was not undone

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """In this thread."""

    @abstractmethod
    def rows(self, sql: str, *values: object) -> list[Row]: ...

    @abstractmethod
    def _outermost(self, lasting: bool) -> AbstractContextManager[None]:
        """A transaction in turn with others, at whose end `_times.stamped` is written down."""

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
                    self._times.begin()
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
        return self._times.now(self)

    def heard(self, at: str) -> None:
        self._times.heard(at)

    def stamp(self) -> str:
        """Within a transaction: the time as it is kept, after all that was kept before it."""
        return self._times.stamp(self)


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
