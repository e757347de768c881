"""A call of memos for one request: as whoever asks, in a lane, within a span, its cost counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import pydantic_core
from starlette.responses import Response

from memos.cost import metered
from memos.interface.doors.server.edge.lanes import Lanes
from memos.interface.doors.server.edge.telemetry import Telemetry

_Done = TypeVar("_Done")
_Piece = TypeVar("_Piece")


class Calls:
    def __init__(self, lanes: Lanes, telemetry: Telemetry) -> None:
        self.lanes, self._telemetry = lanes, telemetry

    async def make(self, name: str, call: Callable[[], _Done]) -> _Done:
        """Raises what the call does, Busy."""
        with self._telemetry.call(name):
            return await self.lanes.of(name).run(partial(self._counted, call))

    async def told(
        self, name: str, call: Callable[[Callable[[_Piece], None]], _Done], places: int = 1
    ) -> AsyncGenerator[_Piece | _Done, None]:
        """Answers as they grow, and then what came of them; see `Lane.pieces`."""
        with self._telemetry.call(name):
            async with aclosing(self.lanes.model.pieces(partial(self._counted, call), places)) as pieces:
                async for piece in pieces:
                    yield piece

    def _counted(self, call: Callable[..., _Done], *values: object) -> _Done:
        """In the thread of the call, so that what it took is counted however it ends, and whoever still listens."""
        with metered() as cost:
            try:
                return call(*values)
            finally:
                self._telemetry.spent(cost)


def as_json(value: Any, status: int = 200) -> Response:
    return Response(pydantic_core.to_json(value), status, media_type="application/json")
