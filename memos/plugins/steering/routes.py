"""Directions over HTTP, as a call beside those of the Memory API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError
from typing_extensions import Unpack

from memos.errors import InputError
from memos.interface.doors.api.calling import costing, explained, item
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Items, Json, Who
from memos.plugins.server.routing import memory_router
from memos.plugins.steering.calls import SteeringCalls
from memos.plugins.steering.values import Behaviour

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


def routes() -> list[BaseRoute]:
    """For `memos serve`: POST /v1/memory/steer and /v1/memory/steerings."""
    return memory_router([steer, steerings]).routes


def steer(
    memory: Memory,
    instruction: str,
    examples: list[dict[str, Json]],
    unrelated: list[dict[str, Json]],
    **who: Unpack[Who],
) -> Items:
    """Make a direction for an instruction that always holds, which steers every answer until it is given up
    (`demote`). examples: {ask, memories, like: {ask, memories}}, each to be answered as `like` is; unrelated: {ask,
    memories}, whose answers must stay. A third of both is for the gate alone."""
    try:
        behaviour = Behaviour.model_validate({"instruction": instruction, "examples": examples, "unrelated": unrelated})
    except ValidationError as error:
        raise InputError(explained(error.errors(), list(Behaviour.model_fields))) from None
    with costing() as cost:
        cube = SteeringCalls.of(memory.within(**who)).steer(behaviour)
    return {"results": [item(cube)], "cost": cost}


def steerings(memory: Memory, **who: Unpack[Who]) -> Items:
    """The directions that answers are steered by."""
    with costing() as cost:
        found = SteeringCalls.of(memory.within(**who)).steerings()
    return {"results": list(map(item, found)), "cost": cost}
