"""The Memory API over HTTP: POST /v1/memory/NAME for each of its calls, made from their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, create_model
from starlette.responses import Response

from memos.interface.mem_api import API, Memory
from memos.interface.server import failures
from memos.interface.server.body import KEY, JsonRoute
from memos.interface.server.calls import Calls, as_json


def memory_router(calls: Calls) -> APIRouter:
    router = APIRouter(
        prefix="/v1/memory", tags=["Memory"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    for name in API:
        signature = inspect.signature(getattr(Memory, name))
        router.add_api_route(
            f"/{name}",
            _endpoint(name, signature, calls),
            methods=["POST"],
            operation_id=name,
            summary=name,
            description=inspect.getdoc(getattr(Memory, name)),
            response_model=signature.return_annotation,
        )
    return router


def _endpoint(name: str, signature: inspect.Signature, calls: Calls) -> Callable[..., Awaitable[Response]]:
    form = _body(name, signature)
    default = inspect.Parameter.empty if any(f.is_required() for f in form.model_fields.values()) else form()

    async def endpoint(request: Request, body: BaseModel) -> Response:
        given = {key: getattr(body, key) for key in body.model_fields_set}
        # what the API returns is what its signature says: it is checked by the types and the tests, not each time
        return as_json(await calls.make(name, partial(getattr(request.scope["seat"].memory, name), **given)))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("request", kind, annotation=Request),
            inspect.Parameter("body", kind, annotation=form, default=default),
        ]
    )
    endpoint.__name__, endpoint.takes = name, tuple(form.model_fields)  # type: ignore[attr-defined]
    return endpoint


def _body(name: str, signature: inspect.Signature) -> type[BaseModel]:
    """What a call takes, as a form that knows no other names."""
    fields: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is inspect.Parameter.empty else p.default)
        for p in signature.parameters.values()
        if p.name != "self"
    }
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
