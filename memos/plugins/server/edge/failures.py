"""Turns errors of memos into HTTP answers: one table of status codes, one shape, the message of the error."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from memos import errors
from memos.errors import Busy, InputError, MemosError
from memos.interface.doors.api.calling import explained, place_of
from memos.interface.doors.api.values import Json
from memos.plugins.server.edge.lanes import ClientDisconnected

log = logging.getLogger("memos")
# the nearest class above an error decides
STATUS: dict[type[Exception], int] = {
    errors.InputError: 400,
    errors.ConfigError: 400,
    errors.PackError: 400,
    errors.ContextOverflow: 400,
    errors.Unsupported: 400,
    errors.Unauthenticated: 401,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.EmptyMemory: 404,
    errors.BadTransition: 409,
    errors.Conflict: 409,
    errors.PromotionError: 409,
    errors.TooLarge: 413,
    errors.Busy: 429,
    errors.MemosError: 500,
    errors.QuotaExceeded: 507,
    errors.NoRoom: 507,
    ClientDisconnected: 499,  # which nobody reads
}
# as OpenAI's clients tell errors apart beside the status
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Failure(BaseModel):
    """What went wrong. message: the words of the error, with the way out. code: its name in memos/errors.py. param: of
    a body that is not of its form, the place of what is wrong first."""

    message: str
    type: str
    code: str
    param: str | None = None


class Failed(BaseModel):
    error: Failure


# for the OpenAPI: what any route under /v1 may answer
RESPONSES: dict[int | str, dict[str, object]] = {
    status: {"model": Failed, "description": meaning}
    for status, meaning in {
        400: "the request cannot be used",
        401: "no key, or none that is in force",
        403: "governance said no",
        404: "no such memory, or none that the caller may see",
        409: "the life cycle has no such move, or something changed meanwhile",
        413: "the body is longer than serve.body_bytes, or asks for more answers than wait at once (serve.queue)",
        422: "the request is not of the form that the schema says",
        429: "more requests than are taken; Retry-After says when to ask again",
        500: "the server, its vault or its model failed",
        507: "a budget or a quota is used up",
    }.items()
}


def status_of(error: Exception) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def failed(error: Exception, param: str | None = None) -> Failed:
    """An error in the shape that OpenAI's clients read."""
    status = status_of(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Failed(error=Failure(message=str(error), type=kind, code=type(error).__name__, param=param))


def response(error: Exception, status: int | None = None, param: str | None = None) -> JSONResponse:
    headers = {}
    if isinstance(error, Busy):
        headers["Retry-After"] = str(max(1, math.ceil(error.after)))
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(failed(error, param).model_dump(), status or status_of(error), headers)


def invalid(found: Sequence[Json], known: Sequence[str]) -> JSONResponse:
    """Of a body that is not of its form, which knows these names."""
    return response(InputError(explained(found, known)), 422, place_of(found[0]) or None)


def install(app: FastAPI) -> None:
    """Every answer of the app that is an error is one of the above."""

    @app.exception_handler(MemosError)
    async def ours(_: Request, error: MemosError) -> JSONResponse:
        if status_of(error) >= 500:
            log.error("%s: %s", type(error).__name__, error)
        return response(error)

    @app.exception_handler(RequestValidationError)
    async def misused(_: Request, error: RequestValidationError) -> JSONResponse:
        return invalid(error.errors(), ())

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        answer = response(InputError(_message(error, request)), error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> JSONResponse:
        return response(MemosError(f"{type(error).__name__} within the server, which is a bug; its log says where"))


def _message(error: HTTPException, request: Request) -> str:
    match error.status_code:
        case 404:
            return f"there is nothing at {request.url.path:.200}; /openapi.json tells what there is"
        case 405:
            takes = (error.headers or {}).get("Allow", "another method")
            return f"{request.url.path:.200} takes {takes}, and no {request.method:.20}"
        case 400:
            return "the body cannot be read; send one JSON object in UTF-8"
        case _:
            return str(error.detail)
