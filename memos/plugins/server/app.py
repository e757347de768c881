"""The server as an ASGI app over one kernel: its routes, those that packages add, and its orderly end."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Body, FastAPI, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Router

import memos
from memos.config import ServeConfig
from memos.errors import MemosError
from memos.extensions import Registry
from memos.interface.doors.api.calling import arguments, result
from memos.interface.doors.api.memory import Memory
from memos.kernel.calls import api_names
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.callers import Callers
from memos.plugins.server.edge.edge import Edge
from memos.plugins.server.edge.lanes import Lanes
from memos.plugins.server.edge.telemetry import Telemetry
from memos.plugins.server.heap import given_back
from memos.plugins.server.routing import KEY, CallRunner, JsonRoute, as_json

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

log = logging.getLogger("memos")
# what packages serve beside memos, as Starlette's routes: without a key, unless it lies under /v1/, where a request
# has its caller in scope["seat"]. app.state.calls makes calls for it as those of the Memory API are made. The lifespan
# of a router is entered as long as the app lives.
ROUTES: Registry[Callable[[], list[BaseRoute] | Router]] = Registry("memos.routes", "set of routes")


def create_app(memory: Memory, config: ServeConfig, *, loopback: bool) -> FastAPI:
    """loopback: only this machine can reach it. The memory stays open when the app ends."""
    kernel, lanes = memory.kernel, Lanes(config.workers, config.queue)
    telemetry = Telemetry(lanes)
    calls = CallRunner(lanes, telemetry)
    provided = provided_routers()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with given_back(kernel.vault.shrink), AsyncExitStack() as stack:
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
    app.state.calls = calls
    failures.install(app)
    for router in (memory_router(calls), health_router(kernel, lanes, telemetry), *provided):
        app.router.routes += router.routes  # an included router looks for its route twice, 0.5 ms for each request
    callers = Callers(memory, loopback, lanes.calls)
    app.add_middleware(Edge, callers=callers, config=config, telemetry=telemetry)
    return app


def memory_router(calls: CallRunner) -> APIRouter:
    """The Memory API: POST /v1/memory/NAME for each of its calls."""
    router = APIRouter(
        prefix="/v1/memory", tags=["Memory"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    for name in api_names():
        method = getattr(Memory, name)
        post = router.post(
            f"/{name}",
            operation_id=name,
            summary=name,
            description=inspect.getdoc(method),
            response_model=result(method),
        )
        post(_endpoint(name, calls))
    return router


def _endpoint(name: str, calls: CallRunner) -> Callable[..., Awaitable[Response]]:
    form = arguments(getattr(Memory, name))
    required = any(field.is_required() for field in form.model_fields.values())
    default = Body(... if required else form())

    async def endpoint(request: Request, body: BaseModel = default) -> Response:
        # what the API returns is what its signature says: it is checked by the types and the tests, not each time
        return as_json(await calls.make(name, partial(getattr(request.scope["seat"].memory, name), **dict(body))))

    endpoint.__annotations__["body"] = form
    endpoint.__name__, endpoint.takes = name, tuple(form.model_fields)  # type: ignore[attr-defined]
    return endpoint


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
