"""The server as an ASGI app over one kernel: its routes, those that packages add, and its orderly end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.routing import BaseRoute

import memos
from memos.config import ServeConfig
from memos.errors import PluginError
from memos.extensions import Registry
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.server.calls import CallRunner
from memos.interface.doors.server.edge import failures
from memos.interface.doors.server.edge.callers import Callers
from memos.interface.doors.server.edge.edge import Edge
from memos.interface.doors.server.edge.lanes import Lanes
from memos.interface.doors.server.edge.telemetry import Telemetry
from memos.interface.doors.server.health import health_router
from memos.interface.doors.server.heap import given_back
from memos.interface.doors.server.memory_routes import memory_router
from memos.interface.doors.server.openai.routes import openai_router

log = logging.getLogger("memos")
Runs = Callable[[], AbstractAsyncContextManager[None]]  # what is entered as long as the app lives
# what packages serve beside memos, as Starlette's routes: without a key, unless it lies under /v1/
ROUTES: Registry[Callable[[], list[BaseRoute]]] = Registry("memos.routes", "set of routes")


def create_app(memory: Memory, config: ServeConfig, *, loopback: bool) -> FastAPI:
    """loopback: only this machine can reach it. The memory stays open when the app ends."""
    kernel, lanes = memory.kernel, Lanes(config.workers, config.queue)
    telemetry = Telemetry(lanes)
    calls = CallRunner(lanes, telemetry)
    mcp_routes, mcp_runs = _mcp(calls, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with given_back(kernel.vault.shrink), mcp_runs():
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
    failures.install(app)
    routers = memory_router(calls), openai_router(kernel, calls), health_router(kernel, lanes, telemetry)
    for routes in (*(router.routes for router in routers), mcp_routes, provided_routes()):
        app.router.routes += routes  # an included router looks for its route twice, 0.5 ms for each request
    callers = Callers(memory, loopback, lanes.calls)
    app.add_middleware(Edge, callers=callers, config=config, telemetry=telemetry)
    return app


def _mcp(calls: CallRunner, config: ServeConfig) -> tuple[list[BaseRoute], Runs]:
    """MCP at /v1/mcp, where its SDK is installed."""
    try:
        from memos.interface.doors.server.mcp_route import mcp_routes
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("mcp"):
            raise
        return [], nullcontext
    return mcp_routes(calls, config)


def provided_routes() -> list[BaseRoute]:
    """What packages serve beside memos; one that fails is named in the log."""
    routes = []
    for name in ROUTES.names():
        try:
            routes += ROUTES.get(name)()
        except PluginError as error:
            log.warning("left out: %s", error)
    return routes
