"""The links of a memory over HTTP, as a call beside those of the Memory API; knows no system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from typing_extensions import TypedDict, Unpack

from memos.interface.doors.api.calling import costing, item
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Costed, Who
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.server.routing import memory_router

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from memos.plugins.curators.signals import Neighbour


class LinkItem(TypedDict):
    """A link, seen from one of its ends. id, memory, form: of the memory at the other. since, until: when it is true;
    null: without a bound."""

    id: str
    memory: str
    form: str
    kind: str
    weight: float
    since: str | None
    until: str | None
    direction: Literal["from", "to"]


class LinkItems(Costed):
    results: list[LinkItem]


def routes() -> list[BaseRoute]:
    """For `memos serve`: POST /v1/memory/linked."""
    return memory_router([linked]).routes


def linked(memory: Memory, memory_id: str, **who: Unpack[Who]) -> LinkItems:
    """The links of a memory, each with the memory at its other end, as far as the caller may see that. Policies that
    write make them, and `memos curators link`. direction: `from` the memory that is named to the other, or `to` it."""
    with costing() as cost:
        found = CuratorCalls.of(memory.around(memory_id, who)).neighbours(memory_id)
    return {"results": list(map(_item, found)), "cost": cost}


def _item(found: Neighbour) -> LinkItem:
    link, other = found.link, item(found.cube)
    return {
        "id": other["id"],
        "memory": other["memory"],
        "form": other["form"],
        "kind": link.kind,
        "weight": link.weight,
        "since": link.since.isoformat() if link.since else None,
        "until": link.until.isoformat() if link.until else None,
        "direction": "from" if link.b == other["id"] else "to",
    }
