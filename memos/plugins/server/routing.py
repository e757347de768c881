"""What the routes under /v1 share: a key, a body of strict JSON, and calls of memos off the event loop.

Calls of the Memory API become routes here, those of plug-ins too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import pydantic_core
from fastapi import APIRouter, Body, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from memos.cost import metered
from memos.errors import InputError
from memos.interface.doors.api.calling import Method, arguments, result
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.edge import INLINE_BYTES, is_json
from memos.plugins.server.edge.lanes import ClientDisconnected, Lanes
from memos.plugins.server.edge.telemetry import Telemetry

T = TypeVar("T")
Piece = TypeVar("Piece")
KEY = Security(HTTPBearer(auto_error=False))  # for the OpenAPI; the edge has looked at it before


class JsonRoute(APIRoute):
    """A call with a body takes the request and the body, and answers with a response. FastAPI describes it; what is
    given is read here: on the way of its own, which solves dependencies, a request takes 0.3 ms longer."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        if self.body_field is None:
            return super().get_route_handler()
        info, call, known = self.body_field.field_info, self.endpoint, getattr(self.endpoint, "takes", ())
        form: type[BaseModel] = info.annotation  # type: ignore[assignment]

        async def handler(request: Request) -> Response:
            content = await _content(request)
            says_json = is_json(request.headers.get("content-type", ""))

            def read() -> BaseModel | Response:
                if not content and info.is_required():
                    return failures.invalid([{"type": "missing", "loc": (), "msg": "Field required"}], known)
                try:
                    return form.model_validate({} if not content else _parsed(content) if says_json else content)
                except ValidationError as error:
                    return failures.invalid(error.errors(include_url=False), known)

            body = read() if len(content) <= INLINE_BYTES else await asyncio.to_thread(read)
            if isinstance(body, Response):
                return body
            return await _unless_disconnected(request, call(request, body))

        return handler


def memory_router(methods: Iterable[Method]) -> APIRouter:
    """POST /v1/memory/NAME for each: a method of `Memory`, or a function that is given one as its first argument. Form,
    reply and description are those of its signature."""
    router = APIRouter(
        prefix="/v1/memory", tags=["Memory"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    for method in methods:
        name = method.__name__
        post = router.post(
            f"/{name}",
            operation_id=name,
            summary=name,
            description=inspect.getdoc(method),
            response_model=result(method),
        )
        post(_endpoint(method))
    return router


def _endpoint(method: Method) -> Callable[..., Awaitable[Response]]:
    form, name = arguments(method), method.__name__
    required = any(field.is_required() for field in form.model_fields.values())
    default = Body(... if required else form())

    async def endpoint(request: Request, body: BaseModel = default) -> Response:
        calls: CallRunner = request.app.state.calls
        # what the API returns is what its signature says: it is checked by the types and the tests, not each time
        return as_json(await calls.make(name, partial(method, request.scope["seat"].memory, **dict(body))))

    endpoint.__annotations__["body"] = form
    endpoint.__name__, endpoint.takes = name, tuple(form.model_fields)  # type: ignore[attr-defined]
    return endpoint


async def _content(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        raise HTTPException(400) from None  # which nobody reads


async def _unless_disconnected(request: Request, answer: Coroutine[object, object, Response]) -> Response:
    """The answer. Of a client that disconnects before, a call that waits is not made; one that runs goes on to its end,
    or to its next piece. Raises what the answer does; ClientDisconnected."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise ClientDisconnected("whoever asked has left before the answer was there; what was remembered stays")
    finally:
        leaving.cancel()
        answering.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _parsed(content: bytes) -> object:
    """No NaN, no half characters, no endless nesting. Raises InputError."""
    try:
        return pydantic_core.from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"the body is broken JSON ({error}); send one JSON object in UTF-8") from None


class CallRunner:
    """Makes calls for requests: each as its caller, in a lane, within a span, with its cost counted."""

    def __init__(self, lanes: Lanes, telemetry: Telemetry) -> None:
        self.lanes, self._telemetry = lanes, telemetry

    async def make(self, name: str, call: Callable[[], T]) -> T:
        """Raises what the call does, Busy."""
        with self._telemetry.call(name):
            return await self.lanes.of(name).run(partial(self._counted, call))

    async def stream(
        self, name: str, call: Callable[[Callable[[Piece], None]], T], places: int = 1
    ) -> AsyncGenerator[Piece | T, None]:
        """Answers as they grow, and then what came of them; see `Lane.pieces`."""
        with self._telemetry.call(name):
            async with aclosing(self.lanes.model.pieces(partial(self._counted, call), places)) as pieces:
                async for piece in pieces:
                    yield piece

    def _counted(self, call: Callable[..., T], *values: object) -> T:
        """In the thread of the call, so that what it took is counted however it ends, and whoever still listens."""
        with metered() as cost:
            try:
                return call(*values)
            finally:
                self._telemetry.count_cost(cost)


def as_json(value: object) -> Response:
    """The value as the body of an answer."""
    return Response(pydantic_core.to_json(value), media_type="application/json")
