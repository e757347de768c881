"""The server as an ASGI app over one kernel: its routes, what is told of its health, and its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

import memos
from memos.config import ServeConfig
from memos.errors import MemosError, PluginError
from memos.extensions import Registry
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.server.calls import Calls
from memos.interface.doors.server.edge import failures
from memos.interface.doors.server.edge.callers import Callers
from memos.interface.doors.server.edge.edge import Edge
from memos.interface.doors.server.edge.lanes import Lanes
from memos.interface.doors.server.edge.telemetry import Telemetry
from memos.interface.doors.server.heap import given_back
from memos.interface.doors.server.memory_routes import memory_router
from memos.interface.doors.server.openai.routes import openai_router

log = logging.getLogger("memos")
# what packages serve beside memos, as Starlette's routes: without a key, unless it lies under /v1/
ROUTES: Registry[Callable[[], list[BaseRoute]]] = Registry("memos.routes", "set of routes")


def create_app(memory: Memory, config: ServeConfig, *, loopback: bool) -> FastAPI:
    """loopback: only this machine can reach it. The memory stays open when the app ends."""
    lanes = Lanes(config.workers, config.queue)
    telemetry = Telemetry(lanes)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with given_back(memory.kernel.vault.shrink), mcp_runs():
            yield
        lanes.close()
        telemetry.close()

    # no pages of FastAPI's own: they load scripts from elsewhere
    app = FastAPI(
        title="memos",
        summary="The Memory API, and OpenAI's over it",
        version=memos.__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        # nor spans and logs of its own, where it has them: they tell what was asked; see telemetry.py
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    failures.install(app)
    calls = Calls(lanes, telemetry)
    for router in (memory_router(calls), openai_router(memory.kernel, calls)):
        app.router.routes += router.routes  # an included router looks for its route twice, 0.5 ms for each request
    mcp_runs = _with_mcp(app, calls, config)

    @app.get("/healthz", tags=["Health"])
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["Health"])
    async def readyz() -> Response:
        """It can serve: the vault answers, and the model has room in its queue."""
        try:
            await lanes.calls.run(memory.kernel.keys)
        except MemosError as error:
            return failures.response(error, 503)
        if lanes.model.full:
            return JSONResponse({"status": "busy"}, 503)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", tags=["Health"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return PlainTextResponse(telemetry.exposed(), media_type="text/plain; version=0.0.4")

    app.router.routes += provided_routes()
    callers = Callers(memory, loopback, lanes.calls)
    app.add_middleware(Edge, callers=callers, config=config, telemetry=telemetry)
    return app


def _with_mcp(app: FastAPI, calls: Calls, config: ServeConfig) -> Callable[[], AbstractAsyncContextManager[None]]:
    """MCP at /v1/mcp where its SDK is installed; what has to be entered while the app lives."""
    try:
        from memos.interface.doors.server import mcp_route
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("mcp"):
            raise
        return nullcontext
    return mcp_route.mount(app, calls, config)


def provided_routes() -> list[BaseRoute]:
    """What packages serve beside memos; one that fails is named in the log."""
    routes = []
    for name in ROUTES.names():
        try:
            routes += ROUTES.get(name)()
        except PluginError as error:
            log.warning("left out: %s", error)
    return routes
