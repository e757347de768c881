"""Serves the tools at /v1/mcp of `memos serve`, each request as its key's caller and within all limits.

Over streamable HTTP, each request by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from starlette.routing import Router

    from memos.interface.doors.api.memory import Memory
    from memos.plugins.mcp.handlers import Context
    from memos.plugins.server.routing import CallRunner

T = TypeVar("T")
PATH = "/v1/mcp"


def routes() -> Router:
    """For `memos serve`: the route, and what has to be entered as long as it is served; none without the SDK."""
    from starlette.routing import Route, Router

    try:
        from mcp.server.transport_security import TransportSecuritySettings

        from memos.plugins.mcp.handlers import mcp_server
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("mcp"):
            raise
        return Router()
    app = mcp_server(_memory_of, _make, _wants_all).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=sys.maxsize,  # the edge of the server bounds it,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # and sees to this
    )
    for route in app.router.routes:
        # a GET would be a stream on which nothing ever comes, as no request knows of another: the protocol lets it be
        # refused, and an open one would count as a request that goes on until the client leaves
        assert isinstance(route, Route)
        route.methods = {"POST"}
    return app.router


def _memory_of(context: Context) -> Memory:
    assert context.request is not None  # over HTTP there is one
    memory: Memory = context.request.scope["seat"].memory
    return memory


def _wants_all(context: Context) -> bool:
    """By /v1/mcp?tools=all."""
    return context.request is not None and context.request.query_params.get("tools") == "all"


async def _make(context: Context, name: str, call: Callable[[], T]) -> T:
    assert context.request is not None
    calls: CallRunner = context.request.app.state.calls
    return await calls.make(name, call)
