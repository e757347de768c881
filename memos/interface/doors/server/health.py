"""Reports on the server itself: that it lives, that it can serve, and its figures for Prometheus; needs no key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from memos.errors import MemosError
from memos.interface.doors.server.edge import failures
from memos.interface.doors.server.edge.lanes import Lanes
from memos.interface.doors.server.edge.telemetry import Telemetry

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS


def health_router(kernel: MemOS, lanes: Lanes, telemetry: Telemetry) -> APIRouter:
    router = APIRouter(tags=["Health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> Response:
        """It can serve: the vault answers, and the model has room in its queue."""
        try:
            await lanes.calls.run(kernel.services.sharing.keys)
        except MemosError as error:
            return failures.response(error, 503)
        if lanes.model.full:
            return JSONResponse({"status": "busy"}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return PlainTextResponse(telemetry.exposition(), media_type="text/plain; version=0.0.4")

    return router
