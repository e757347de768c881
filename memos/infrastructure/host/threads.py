"""Who multiplies on which cores: encoders each on one, the model on all of them.

Encoders' threads are as many as cores for questions, and as many for what fills an index. Each multiplies alone: two
small forwards side by side are read in .6 of the time that they take one after the other on both cores, as threads that
share a multiplication wait for one another at its end. Knows no encoder and no model.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

_NAME = "memos-encoder"
_MOST = 8  # each keeps buffers of its own (of MKL 4.4 MB, measured)
THREADS = min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
_BEHIND = 3  # weighs half: two such threads leave one that adds a core of two
SHORT = 256  # characters of a question, at most
_SOFT = 1  # omp_pause_soft: settings stay
_T = TypeVar("_T")
_of_short: ThreadPoolExecutor
_of_long: ThreadPoolExecutor
_of_limits: ThreadPoolExecutor
_of_thread = threading.local()
_blas = cache(lambda: ThreadpoolController().select(user_api="blas"))
_openmp = cache(lambda: ThreadpoolController().select(user_api="openmp"))
_lock, _alone, _limits = threading.Lock(), 0, ExitStack()  # of threads within `numpy_multiplies_alone`


def on_encoder_thread(call: Callable[[], _T], characters: int) -> _T:
    """Make a call on one of the threads; on others it would leave buffers behind in each, so a server of many threads
    would grow with each, and they would share the same cores. characters: of the text that it reads."""
    return next(on_encoder_threads([(characters, call)]))


def on_encoder_threads(calls: Iterable[tuple[int, Callable[[], _T]]]) -> Iterator[_T]:
    """The results in order. So many wait at a time as there are threads: who asks meanwhile comes after these, and not
    after all."""
    waiting: deque[Future[_T]] = deque()
    for characters, call in calls:
        if len(waiting) == THREADS:
            yield waiting.popleft().result()
        waiting.append(_submitted(call, characters))
    yield from (future.result() for future in waiting)


def multiply_alone() -> None:
    """On an encoder's thread, after torch has been imported: no other threads help it, and it helps none."""
    if threading.current_thread().name.startswith(_NAME) and not hasattr(_of_thread, "limits"):
        _of_thread.limits = torch_multiplies_alone()  # of this thread, as OpenMP has it
        release_openmp_threads()  # that helped to load


@contextmanager
def numpy_multiplies_alone() -> Iterator[None]:
    """Within it NumPy multiplies on each thread alone, in all of the process: OpenBLAS's threads spin while they wait
    for one another, and beside another busy process a forward takes 40 times as long with two on two cores.

    All of it is set by one thread: threadpoolctl lets no other change what one has set.
    """
    global _alone
    with _lock:
        _alone += 1
        if _alone == 1:
            _on_limits_thread(lambda: _limits.enter_context(_blas().limit(limits=1)))
    try:
        yield
    finally:
        with _lock:
            _alone -= 1
            if not _alone:
                _on_limits_thread(_limits.close)


def torch_multiplies_alone() -> AbstractContextManager[object]:
    """Within it torch multiplies on this thread alone."""
    return _openmp().limit(limits=1)


def _on_limits_thread(call: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the interpreter is shutting down: slower, but as right
        _of_limits.submit(call).result()


def release_openmp_threads() -> None:
    """End the threads that helped this one to multiply; the next multiplication begins others, in some 100 us.

    libgomp keeps helpers for each thread that ever multiplied, and lets them spin between loops only while all of them
    are no more than the cores. Beyond that every loop of a forward waits until they are woken: with those of one idle
    thread left, a small model answers in 1.4 times its time.
    """
    for library in _gomp():
        library.omp_pause_resource(_SOFT, library.omp_get_initial_device())


@contextmanager
def openmp_threads() -> Iterator[None]:
    """Those that help this thread within it are released at its end."""
    try:
        yield
    finally:
        release_openmp_threads()


@cache
def _gomp() -> list[ctypes.CDLL]:
    return [
        one.dynlib
        for one in _openmp().lib_controllers
        if one.prefix == "libgomp" and hasattr(one.dynlib, "omp_pause_resource")
    ]


def begun(pool: ThreadPoolExecutor, call: Callable[[], _T]) -> Future[_T]:
    """What a call on a thread of the pool gives; what it raises is raised where that is read."""
    try:
        return pool.submit(call)
    except RuntimeError:  # the interpreter is shutting down, and waits for the thread that calls
        return _done(call)


def _done(call: Callable[[], _T]) -> Future[_T]:
    done: Future[_T] = Future()
    try:
        done.set_result(call())
    except Exception as error:
        done.set_exception(error)
    return done


def _submitted(call: Callable[[], _T], characters: int) -> Future[_T]:
    if threading.current_thread().name.startswith(_NAME):
        return _done(call)
    return begun(_of_short if characters <= SHORT else _of_long, call)


def _behind_others() -> None:
    """What fills an index leaves the core to whoever asks or adds meanwhile, where a thread has a priority."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _BEHIND)


def _start() -> None:
    global _of_short, _of_long, _of_limits
    _of_short = ThreadPoolExecutor(THREADS, f"{_NAME}-short")
    _of_long = ThreadPoolExecutor(THREADS, f"{_NAME}-long", _behind_others)
    _of_limits = ThreadPoolExecutor(1, "memos-limits")


_start()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start)  # threads stay with the parent
