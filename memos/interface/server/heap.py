"""Memory that the process has freed, given back to the system.

glibc keeps what is freed for its next allocations. Where many threads work with tensors of many sizes, what is still
used lies scattered between, and a server grows though nothing more is kept.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_EVERY_S = 30.0


@asynccontextmanager
async def given_back() -> AsyncIterator[None]:
    """Meanwhile, twice a minute. Elsewhere than on glibc nothing is done."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        yield
        return

    async def give_back() -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await asyncio.to_thread(trim, 0)

    task = asyncio.create_task(give_back())
    try:
        yield
    finally:
        task.cancel()
