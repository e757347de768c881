"""Returns freed memory to the system, on Linux with glibc.

SQLite caches the pages that it has read or written, and glibc what is freed, for the next use. Where many threads work
with tensors of many sizes, what is still used lies scattered between, and a server grows though it stores nothing more.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_INTERVAL_S = 10.0
_M_ARENA_MAX = -8  # of malloc.h


def one_heap() -> None:
    """On glibc, where there are no other threads yet: all of them will allocate from one heap. Of the heaps that
    threads have by themselves, up to eight for each core, `malloc_trim` does not give back the ends."""
    _glibc("mallopt", _M_ARENA_MAX, 1)


def trim() -> None:
    """On glibc, give what is freed back to the system."""
    _glibc("malloc_trim", 0)


def _glibc(name: str, *given: int) -> None:
    """Call it where it is there."""
    call = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if call is not None:
        call(*given)
