"""Memory that nothing needs, given back to the system.

SQLite holds the pages that it has read or written, and glibc what is freed, for the next use. Where many threads work
with tensors of many sizes, what is still used lies scattered between, and a server grows though nothing more is kept.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_EVERY_S = 30.0


@asynccontextmanager
async def given_back(free: Callable[[], None]) -> AsyncIterator[None]:
    """Meanwhile, twice a minute. free: frees what can be made again. What is freed leaves the process on glibc only."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def once() -> None:
        free()
        if trim is not None:
            trim(0)

    async def give_back() -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await asyncio.to_thread(once)

    task = asyncio.create_task(give_back())
    try:
        yield
    finally:
        task.cancel()
