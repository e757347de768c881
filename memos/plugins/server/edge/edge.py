"""Checks every request before a route: who asks, how much, how large; and reports it afterwards.

Pure ASGI, since the path of a request has to stay short. Parses no body, and writes none of it down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.config import ServeConfig
from memos.errors import Denied, MemosError, TooLarge
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.callers import Callers, Meter
from memos.plugins.server.edge.lanes import CALLER
from memos.plugins.server.edge.telemetry import Telemetry

GUARDED = ("/v1/", "/metrics")  # figures tell what others ask
MAX_VALUES = 20_000  # of JSON in a body: parsing holds up all threads, and each value may bring an error of its form
INLINE_BYTES = 4096  # of a body that is read on the event loop, in ms; others are read in a thread


def is_loopback(host: str) -> bool:
    """True for a name of this machine that no other can reach."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Edge:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, callers: Callers, config: ServeConfig, telemetry: Telemetry) -> None:
        self._app, self._callers, self._max_bytes, self._telemetry = app, callers, config.body_bytes, telemetry
        self._meter = Meter(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        with self._telemetry.request(scope, headers) as outcome:

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    outcome.status = message["status"]
                await send(message)

            if not scope["path"].startswith(GUARDED):
                return await self._app(scope, receive, sending)
            try:
                self._require_here(headers.get(b"host", ""), headers.get(b"origin"))
                address, _ = scope["client"] or ("", 0)
                seat = await self._callers.seat_of(headers.get(b"authorization"), address)
                outcome.key = seat.key
                self._require_size(headers.get(b"content-length", ""))
                with self._meter.admitted(seat.key):
                    scope["seat"] = seat
                    CALLER.set(seat.key)
                    says_json = is_json(headers.get(b"content-type", ""))
                    await self._app(scope, await self._received(receive, says_json), sending)
                if outcome.status == 401:
                    self._callers.forget(seat)
            except MemosError as error:
                await failures.response(error)(scope, receive, sending)

    def _require_here(self, host: str, origin: str | None) -> None:
        """A page of some other site, whose name leads here or which calls here, is not whoever sits at this machine."""
        if not self._callers.open:
            return
        for header in (host,) if origin is None else (host, origin):
            named = header.rpartition("://")[2]
            if not is_loopback(named if named.endswith("]") else named.rpartition(":")[0] or named):
                raise Denied(
                    f"without a key this server is for this machine alone, and not for {header!r:.80}; call it as "
                    f"127.0.0.1, or make a key with `memos key add`"
                )

    def _require_size(self, length: str) -> None:
        if length.isdecimal() and int(length[:20]) > self._max_bytes:
            self._too_large(f"{int(length[:20]):,}")

    def _too_large(self, size: str) -> None:
        raise TooLarge(
            f"the body has {size} bytes, and {self._max_bytes:,} are read (serve.body_bytes); send less at once, or "
            f"raise it"
        )

    async def _received(self, receive: Receive, says_json: bool) -> Receive:
        """The same, once the body is here: no more than the limits, whatever its header says. Raises TooLarge."""
        messages = deque([await receive()])
        taken = len(messages[0].get("body", b""))
        while messages[-1].get("more_body"):
            messages.append(await receive())
            taken += len(messages[-1].get("body", b""))
            if taken > self._max_bytes:
                self._too_large(f"{taken:,} or more")
        if says_json and taken > INLINE_BYTES:
            await asyncio.to_thread(require_few_values, b"".join(message.get("body", b"") for message in messages))

        async def replayed() -> Message:
            return messages.popleft() if messages else await receive()

        return replayed


def is_json(content_type: str) -> bool:
    kind, _, form = content_type.partition(";")[0].strip().casefold().partition("/")
    return kind == "application" and (form == "json" or form.endswith("+json"))


def require_few_values(content: bytes) -> None:
    """Before it is parsed. Raises TooLarge."""
    if _separators(content) < MAX_VALUES:
        return
    plain = content.replace(rb"\\", b"").replace(rb"\"", b"")
    count = plain.count(b'"') // 4  # of the names and values that are texts, two in a pair
    if count < MAX_VALUES:
        count = _separators(b"".join(plain.split(b'"')[::2]))  # those within texts separate nothing
    if count >= MAX_VALUES:
        raise TooLarge(f"the body has about {count:,} values, and {MAX_VALUES:,} are read at once; send it in parts")


def _separators(content: bytes) -> int:
    """Each value of JSON but the first comes with one."""
    return sum(map(content.count, (b",", b"]", b"}")))
