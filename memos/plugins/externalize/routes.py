"""Back to text over HTTP, as a call beside those of the Memory API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from memos.interface.doors.api.calling import costing
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Records, Who
from memos.plugins.externalize.calls import ExternalizeCalls
from memos.plugins.externalize.values import SURE
from memos.plugins.server.routing import memory_router

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


def routes() -> list[BaseRoute]:
    """For `memos serve`: POST /v1/memory/externalize."""
    return memory_router([externalize]).routes


def externalize(
    memory: Memory,
    memory_id: str,
    *,
    about: list[str] | None = None,
    keep: bool = False,
    sure: float = SURE,
    **who: Unpack[Who],
) -> Records:
    """What an adapter or a KV cache says, each statement with its evidence, its confidence, and the memory that backs
    it. about: subjects to ask about. keep: what has at least the confidence `sure` becomes a memory, believed as one
    that a model wrote; `kept` is its id, and `left` why another was not kept."""
    with costing() as cost:
        calls = ExternalizeCalls.of(memory.around(memory_id, who))
        found = calls.externalize(memory_id, about=about or (), keep=keep, sure=sure)
    return {"results": found.rows, "cost": cost}
