"""Does something again and again beside the requests of a server, as long as it lives; knows no vault."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from memos.errors import MemosError

log = logging.getLogger("memos")


@asynccontextmanager
async def regularly(every_s: float, work: Callable[[], None]) -> AsyncIterator[None]:
    """Meanwhile, in a thread of its own. Where it cannot be done, as while a database is away, it is tried again."""

    def once() -> None:
        try:
            work()
        except MemosError as error:
            log.debug("put off: %s", error)

    async def on_and_on() -> None:
        while True:
            await asyncio.sleep(every_s)
            await asyncio.to_thread(once)

    task = asyncio.create_task(on_and_on())
    try:
        yield
    finally:
        task.cancel()
