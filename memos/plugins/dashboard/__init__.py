"""The dashboard: static pages that ask the Memory API of the server they came from, and nobody else.

Knows files and headers; must not know what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

STATIC = Path(__file__).parent / "static"
# nothing but files of this folder runs, is shown or is asked: neither another host nor a text of a memory can add any
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked for again by its tag, so that a new version is seen at once
}


def routes() -> list[BaseRoute]:
    """The dashboard at /dashboard/, and the way there from /. It needs no key; what it asks for does."""
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import Scope

    class Pages(StaticFiles):
        async def get_response(self, path: str, scope: Scope) -> Response:
            response = await super().get_response(path, scope)
            response.headers.update(HEADERS)
            return response

    async def front(_: Request) -> Response:
        return RedirectResponse("dashboard/")

    return [Route("/", front), Mount("/dashboard", Pages(directory=STATIC, html=True), name="dashboard")]
