"""What is done by one thread at a time, whatever asks for it: loading a model, and reading with an encoder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Done = TypeVar("_Done")
_LOADING = threading.RLock()


@contextmanager
def loading() -> Iterator[None]:
    """Around imports of transformers within functions, and around what it loads.

    While it builds a model it changes torch for the whole process (the default type, how weights begin, where they
    lie), and who imports it while another thread does is handed a module that is not whole.
    """
    with _LOADING:
        yield


def reading(call: Callable[[], _Done]) -> _Done:
    """Make a call on the one thread that encoders read on.

    Each thread on which matrices were multiplied keeps buffers of its own, and so do the threads that help it (of MKL
    4.4 MB each, measured), so a server of many threads would grow with each; and they would share the same cores.
    """
    if threading.current_thread().name.startswith(_NAME):
        return call()
    try:
        made = _thread.submit(call)
    except RuntimeError:  # the interpreter ends, and what goes on beside is still waited for
        return call()
    return made.result()


_NAME = "memos-encoder"
_thread: ThreadPoolExecutor


def _begin() -> None:
    global _thread
    _thread = ThreadPoolExecutor(1, _NAME)


_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)  # threads stay with the parent
