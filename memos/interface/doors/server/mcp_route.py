"""The tools of `memos.interface.doors.agents.mcp` at /v1/mcp of the server, over streamable HTTP: each request by itself, as whoever
its key stands for, within the limits of all others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from mcp.server.context import ServerRequestContext
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route

from memos.config import ServeConfig
from memos.interface.doors.agents.mcp import mcp_server
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.server.calls import Calls

PATH = "/v1/mcp"


def mount(app: FastAPI, calls: Calls, config: ServeConfig) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Adds the route; what is returned has to be entered as long as the app lives."""

    server = mcp_server(_memory_of, calls.make)
    routes = server.streamable_http_app(
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
    app.router.routes.extend(routes)
    return server.session_manager.run


def _memory_of(context: ServerRequestContext[Any, Any]) -> Memory:
    assert context.request is not None  # over HTTP there is one
    return context.request.scope["seat"].memory
