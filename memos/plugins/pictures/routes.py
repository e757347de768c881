"""Files of memories over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.plugins.pictures.door import add_file, file
from memos.plugins.server.routing import memory_router

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


def routes() -> list[BaseRoute]:
    """For `memos serve`: POST /v1/memory/add_file and /v1/memory/file."""
    return memory_router([add_file, file]).routes
