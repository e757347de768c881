"""Makes a call of memos for one request: as its caller, in a lane, within a span, with its cost counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import pydantic_core
from starlette.responses import Response

from memos.cost import metered
from memos.interface.doors.server.edge.lanes import Lanes
from memos.interface.doors.server.edge.telemetry import Telemetry

T = TypeVar("T")
Piece = TypeVar("Piece")


class CallRunner:
    """Makes calls off the event loop."""

    def __init__(self, lanes: Lanes, telemetry: Telemetry) -> None:
        self.lanes, self._telemetry = lanes, telemetry

    async def make(self, name: str, call: Callable[[], T]) -> T:
        """Raises what the call does, Busy."""
        with self._telemetry.call(name):
            return await self.lanes.of(name).run(partial(self._counted, call))

    async def stream(
        self, name: str, call: Callable[[Callable[[Piece], None]], T], places: int = 1
    ) -> AsyncGenerator[Piece | T, None]:
        """Answers as they grow, and then what came of them; see `Lane.pieces`."""
        with self._telemetry.call(name):
            async with aclosing(self.lanes.model.pieces(partial(self._counted, call), places)) as pieces:
                async for piece in pieces:
                    yield piece

    def _counted(self, call: Callable[..., T], *values: object) -> T:
        """In the thread of the call, so that what it took is counted however it ends, and whoever still listens."""
        with metered() as cost:
            try:
                return call(*values)
            finally:
                self._telemetry.count_cost(cost)


def as_json(value: object, status: int = 200) -> Response:
    """The value as the body of an answer."""
    return Response(pydantic_core.to_json(value), status, media_type="application/json")
