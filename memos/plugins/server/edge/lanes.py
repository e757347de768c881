"""Threads for calls that block, each lane behind a bounded queue: answers of the model, training, and all else.
Callers take turns.

Answers that go on at once share forwards of the host (`model.requests_at_once`); what does not need the model does not
wait for them, and nobody waits for training but who asked for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from memos.errors import Busy, MemosError, TooLarge

# calls that wait for the model as a request, and those that train and encode beside it, as jobs do
ANSWERS, JOBS = frozenset({"chat", "explain", "feedback"}), frozenset({"promote", "tick"})
CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("the id of the key of a request", default="")
T = TypeVar("T")
Piece = TypeVar("Piece")


class ClientDisconnected(MemosError):
    """Nobody listens to an answer any more."""


class Lane:
    """Threads for calls of one kind, and the queue before them."""

    def __init__(self, name: str, workers: int, queue: int) -> None:
        """queue: how many calls may wait beside those that go on."""
        self.name, self._workers, self._capacity, self._occupied = name, workers, workers + queue, 0
        self._lock, self._share = threading.Lock(), max(1, workers // 2)  # calls of one caller that go on at once
        self._queues: dict[
            str, deque[tuple[Future[Any], Callable[[], Any]]]
        ] = {}  # by caller: whose turn is next first
        self._running, self._put_off = Counter[str](), 0
        self._threads = ThreadPoolExecutor(workers, f"memos-{name}")
        self.stopping = threading.Event()

    @property
    def waiting(self) -> int:
        return max(0, self._occupied - self._workers)

    @property
    def full(self) -> bool:
        return self._occupied >= self._capacity

    async def run(self, call: Callable[[], T], places: int = 1) -> T:
        """In a thread of the lane, in its turn. A call that is cancelled while it waits is not made. places: that it
        takes until it ends, as so many calls would. Raises Busy; TooLarge for more places than there are."""
        if places > self._capacity:
            raise TooLarge(
                f"{places:,} calls of the {self.name} are asked for at once, and {self._capacity:,} may go on or wait "
                f"(serve.queue); ask for fewer at once, or raise it"
            )
        with self._lock:
            if self._occupied + places > self._capacity:
                raise Busy(
                    f"{self.waiting} calls wait for the {self.name} already, and there is no room for {places} more "
                    f"(serve.queue); ask again in a second",
                    1.0,
                )
            self._occupied += places
        future, key = Future[T](), CALLER.get()
        with self._lock:
            self._queues.setdefault(key, deque()).append((future, partial(contextvars.copy_context().run, call)))
        self._threads.submit(self._work)
        # once it has really ended: whoever asked may have left before
        future.add_done_callback(partial(self._release, places))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        """Make one call, of the caller whose turn it is: nobody waits for all that another has asked."""
        with self._lock:
            key = next((key for key in self._queues if self._running[key] < self._share), None)
            if key is None:
                self._put_off += 1
                return
            queue = self._queues.pop(key)
            future, call = queue.popleft()
            if queue:
                self._queues[key] = queue  # whose turn comes after that of the others
            self._running[key] += 1
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(call())
        except BaseException as error:  # goes to whoever asked
            future.set_exception(error)
        finally:
            with self._lock:
                self._running -= Counter({key: 1})
                if self._put_off and not self.stopping.is_set():
                    self._put_off -= 1
                    self._threads.submit(self._work)

    def _release(self, places: int, _: Future[T]) -> None:
        with self._lock:
            self._occupied -= places

    async def pieces(
        self, call: Callable[[Callable[[Piece], None]], T], places: int = 1
    ) -> AsyncGenerator[Piece | T, None]:
        """The pieces that a call tells as it goes on, and then its result. Closed before, the call ends with its next
        piece, or is not made at all. Raises what the call and `run` do."""
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        loop, closed = asyncio.get_running_loop(), threading.Event()

        def tell(piece: Piece) -> None:
            if closed.is_set():
                raise ClientDisconnected("nobody listens to this answer any more; what was remembered stays")
            if self.stopping.is_set():
                raise Busy("this server is stopping; what was remembered stays, ask again when it is back", 10.0)
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        task = asyncio.ensure_future(self.run(partial(call, tell), places))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await task
        finally:
            closed.set()
            if not task.cancel() and not task.cancelled():
                task.exception()  # was raised above, or is for nobody

    def close(self) -> None:
        """No call is made any more, answers that go on end with their next piece; the others are waited for."""
        self.stopping.set()
        with self._lock:
            waiting = [future for queue in self._queues.values() for future, _ in queue]
        for future in waiting:
            future.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)


class Lanes:
    """The lanes of a server, and which of them makes a call."""

    def __init__(self, workers: int, answers: int, queue: int) -> None:
        """How many calls, and answers of the model, go on at once; and how many of each may wait."""
        self.model, self.jobs = Lane("model", answers, queue), Lane("jobs", 1, queue)
        self.calls = Lane("workers", workers, queue)

    def __iter__(self) -> Iterator[Lane]:
        return iter((self.model, self.jobs, self.calls))

    def of(self, call: str) -> Lane:
        """Where a call of this name is made."""
        return self.model if call in ANSWERS else self.jobs if call in JOBS else self.calls

    def close(self) -> None:
        for lane in self:
            lane.close()
