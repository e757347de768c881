"""What packages serve beside memos, by the entry point `memos.routes`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import httpx
import pytest
from fastapi.testclient import TestClient

from memos import Memory
from memos.config import ServeConfig
from memos.plugins.server.app import create_app

PAGE = """
from starlette.responses import PlainTextResponse
from starlette.routing import Route
def routes():
    async def page(request):
        return PlainTextResponse("a page of mine")
    return [Route("/mine", page), Route("/healthz", page), Route("/v1/mine", page)]
"""
ROUTER = """
from contextlib import asynccontextmanager
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router
runs = []
@asynccontextmanager
async def lifespan(app):
    runs.append("begun")
    yield
    runs.append("ended")
def routes():
    async def page(request):
        return PlainTextResponse(" ".join(runs))
    return Router([Route("/mine", page)], lifespan=lifespan)
"""


def test_a_package_serves_pages_beside_ours(memory: Memory, install: Callable[[str, str, str, str], None]) -> None:
    install("memos-page", "memos.routes", "page = memos_page:routes", PAGE)
    client = TestClient(create_app(memory, ServeConfig(), loopback=True))
    assert client.get("/mine").text == "a page of mine"
    assert client.get("/healthz").json() == {"status": "ok"}  # ours come first
    assert client.get("/v1/mine").status_code == 401  # for whoever has a key


def test_a_router_lives_as_long_as_the_server(memory: Memory, install: Callable[[str, str, str, str], None]) -> None:
    install("memos-router", "memos.routes", "page = memos_router:routes", ROUTER)
    with TestClient(create_app(memory, ServeConfig(), loopback=True)) as client:
        assert client.get("/mine").text == "begun"
    assert sys.modules["memos_router"].runs == ["begun", "ended"]


def test_one_that_fails_is_named_and_the_server_goes_on(
    memory: Memory, install: Callable[[str, str, str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    install("memos-no-page", "memos.routes", "page = memos_no_page:routes", "raise ImportError('no page')")
    with caplog.at_level(logging.WARNING, "memos"):
        app = create_app(memory, ServeConfig(), loopback=True)
    assert "ImportError: no page" in caplog.text
    assert TestClient(app).get("/healthz").status_code == 200


def test_the_dashboard_is_served_as_others_are(url: str) -> None:
    assert httpx.get(url).headers["location"] == "dashboard/"
    page = httpx.get(f"{url}/dashboard/")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
