"""Serves the Memory API over HTTP: POST /v1/memory/NAME for each of its calls."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from memos.interface.doors.api.calling import arguments, result
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.server.body import KEY, JsonRoute
from memos.interface.doors.server.calls import CallRunner, as_json
from memos.interface.doors.server.edge import failures
from memos.kernel.calls import api_names


def memory_router(calls: CallRunner) -> APIRouter:
    router = APIRouter(
        prefix="/v1/memory", tags=["Memory"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    for name in api_names():
        router.add_api_route(
            f"/{name}",
            _endpoint(name, calls),
            methods=["POST"],
            operation_id=name,
            summary=name,
            description=inspect.getdoc(getattr(Memory, name)),
            response_model=result(getattr(Memory, name)),
        )
    return router


def _endpoint(name: str, calls: CallRunner) -> Callable[..., Awaitable[Response]]:
    form = arguments(getattr(Memory, name))
    default = inspect.Parameter.empty if any(f.is_required() for f in form.model_fields.values()) else form()

    async def endpoint(request: Request, body: BaseModel) -> Response:
        # what the API returns is what its signature says: it is checked by the types and the tests, not each time
        return as_json(await calls.make(name, partial(getattr(request.scope["seat"].memory, name), **dict(body))))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("request", kind, annotation=Request),
            inspect.Parameter("body", kind, annotation=form, default=default),
        ]
    )
    endpoint.__name__, endpoint.takes = name, tuple(form.model_fields)  # type: ignore[attr-defined]
    return endpoint
