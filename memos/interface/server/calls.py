"""A call of memos for one request: as whoever asks, in a lane, within a span, its cost counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import pydantic_core
from starlette.responses import Response

from memos.interface.server.lanes import Lane, Lanes
from memos.interface.server.telemetry import Telemetry

_Done = TypeVar("_Done")
_Piece = TypeVar("_Piece")


class Calls:
    def __init__(self, lanes: Lanes, telemetry: Telemetry) -> None:
        self.lanes, self._telemetry = lanes, telemetry

    async def make(self, name: str, lane: Lane, call: Callable[[], _Done]) -> _Done:
        """Raises what the call does, Busy."""
        with self._telemetry.call(name):
            done = await lane.run(call)
        self._count(done)
        return done

    async def told(
        self, name: str, call: Callable[[Callable[[_Piece], None]], _Done], places: int = 1
    ) -> AsyncGenerator[_Piece | _Done, None]:
        """Answers as they grow, and then what came of them; see `Lane.pieces`."""
        with self._telemetry.call(name):
            async with aclosing(self.lanes.model.pieces(call, places)) as pieces:
                async for piece in pieces:
                    self._count(piece)
                    yield piece

    def _count(self, done: object) -> None:
        if isinstance(done, dict) and "cost" in done:
            self._telemetry.spent(done["cost"])


def as_json(value: Any, status: int = 200) -> Response:
    return Response(pydantic_core.to_json(value), status, media_type="application/json")
