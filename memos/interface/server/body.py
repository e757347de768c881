"""What the routes under /v1 share: a key, and a body that is JSON; strict, since what is taken in is told again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pydantic_core
from fastapi import Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from memos.errors import InputError

KEY = Security(HTTPBearer(auto_error=False))  # for the OpenAPI; the edge has looked at it before


class _JsonRequest(Request):
    async def json(self) -> Any:
        """No NaN, no half characters, no endless nesting. Raises InputError."""
        if not hasattr(self, "_json"):
            try:
                self._json = pydantic_core.from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise InputError(f"the body is broken JSON ({error}); send one JSON object in UTF-8") from None
        return self._json


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handler
