"""The server as an ASGI app over one kernel: its routes, those that packages add, and its orderly end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Router

import memos
from memos.config import ServeConfig
from memos.errors import MemosError
from memos.extensions import Registry
from memos.interface.doors.api.memory import Memory
from memos.kernel.calls import api_names
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.callers import Callers
from memos.plugins.server.edge.edge import Edge
from memos.plugins.server.edge.lanes import Lanes
from memos.plugins.server.edge.telemetry import Telemetry
from memos.plugins.server.heap import trim
from memos.plugins.server.regularly import regularly
from memos.plugins.server.routing import CallRunner, memory_router

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

log = logging.getLogger("memos")
TRIM_S = 10.0  # between two times that freed memory is given back
FOLLOW_S = 0.5  # between two looks at what other processes have changed
# what packages serve beside memos, as Starlette's routes: without a key, unless it lies under /v1/, where a request
# has its caller in scope["seat"]. app.state.calls makes calls for it as those of the Memory API are made. The lifespan
# of a router is entered as long as the app lives.
ROUTES: Registry[Callable[[], list[BaseRoute] | Router]] = Registry("memos.routes", "set of routes")


def create_app(memory: Memory, config: ServeConfig, *, loopback: bool) -> FastAPI:
    """loopback: only this machine can reach it. The memory stays open when the app ends."""
    kernel, lanes = memory.kernel, Lanes(config.workers, memory.kernel.config.model.requests_at_once, config.queue)
    telemetry = Telemetry(lanes)
    provided = provided_routers()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for every_s, work in ((TRIM_S, kernel.vault.shrink), (TRIM_S, trim), (FOLLOW_S, Following(kernel))):
                await stack.enter_async_context(regularly(every_s, work))
            for router in provided:
                await stack.enter_async_context(router.lifespan_context(app))
            yield
        lanes.close()
        telemetry.close()

    # no pages of FastAPI's own: they load scripts from elsewhere
    app = FastAPI(
        title="memos",
        summary="The Memory API, and OpenAI's over it",
        version=memos.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # nor spans and logs of its own, where it has them: they tell what was asked; see telemetry.py
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.calls = CallRunner(lanes, telemetry)
    failures.install(app)
    api = memory_router(getattr(Memory, name) for name in api_names())
    for router in (api, health_router(kernel, lanes, telemetry), *provided):
        app.router.routes += router.routes  # an included router looks for its route twice, 0.5 ms for each request
    callers = Callers(memory, loopback, lanes.calls)
    app.add_middleware(Edge, callers=callers, config=config, telemetry=telemetry)
    return app


class Following:
    """What is in memory of cubes that another process has deleted, changed or given up leaves it, also where nothing
    is asked for meanwhile. Answers need no such notice: each reads what is in force."""

    def __init__(self, kernel: MemOS) -> None:
        self._kernel, self._read = kernel, kernel.vault.last_change()

    def __call__(self) -> None:
        if (change := self._kernel.vault.last_change()) != self._read:
            self._kernel.parts.freshness.release()
            self._read = change


def health_router(kernel: MemOS, lanes: Lanes, telemetry: Telemetry) -> APIRouter:
    """The server itself: that it lives, that it can serve, and its figures. The edge asks for a key for these."""
    router = APIRouter(tags=["Health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> Response:
        """It can serve: the vault answers, and the model has room in its queue."""
        try:
            await lanes.calls.run(kernel.services.governing.keys)
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


def provided_routers() -> list[Router]:
    """What packages serve beside memos; one that fails is named in the log."""
    provided = [routes() for _, routes in ROUTES.usable(lambda problem: log.warning("left out: %s", problem))]
    return [given if isinstance(given, Router) else Router(given) for given in provided]
