"""Serves the tools of agents/mcp.py at /v1/mcp, each request as its key's caller and within all limits.

Over streamable HTTP, each request by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import BaseRoute, Route

from memos.config import ServeConfig
from memos.interface.doors.agents.mcp import Context, mcp_server
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.server.routing import CallRunner

PATH = "/v1/mcp"


def mcp_routes(
    calls: CallRunner, config: ServeConfig
) -> tuple[list[BaseRoute], Callable[[], AbstractAsyncContextManager[None]]]:
    """The routes, and what has to be entered as long as they are served."""
    server = mcp_server(_memory_of, calls.make)
    routes: list[BaseRoute] = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=config.body_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the edge sees to it
    ).routes
    for route in routes:
        # a GET would be a stream on which nothing ever comes, as no request knows of another: the protocol lets it be
        # refused, and an open one would count as a request that goes on until the client leaves
        assert isinstance(route, Route)
        route.methods = {"POST"}
    return routes, server.session_manager.run


def _memory_of(context: Context) -> Memory:
    assert context.request is not None  # over HTTP there is one
    memory: Memory = context.request.scope["seat"].memory
    return memory
