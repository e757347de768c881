"""Starts a server from the settings, and runs it until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from memos.config import Config, ServeConfig
from memos.errors import Denied, InputError
from memos.infrastructure.vault.store.folder_lock import claimed
from memos.interface.doors.api.memory import Memory
from memos.interface.reading.phrasebook import reply_openings
from memos.plugins.server.app import create_app
from memos.plugins.server.edge.edge import is_loopback

HEADER_S = 10.0  # from the first byte of a request, or the opening of its connection, to the end of its header


def serve(settings: Config, vault: Path | None, ready: Callable[[str], None]) -> None:
    """Serve a vault until SIGTERM or SIGINT: then no request is taken any more, those that go on end, and the vault is
    closed. ready: called with the address once the server listens.

    Raises Denied for an address beyond loopback while there is no key; InputError for one that cannot be listened at;
    VaultError where the vault has a server already; and what loading the model raises.
    """
    config = settings.serve
    with Memory(settings, vault=vault) as memory:
        loopback = is_loopback(config.host)
        _require_key(memory, config.host, loopback)
        host = f"[{config.host}]" if ":" in config.host else config.host
        claim = claimed(memory.kernel.vault.path, "server")
        with claim as announce, listening(config.host, config.port) as listener:
            address = f"{host}:{listener.getsockname()[1]}"
            announce(f"process {os.getpid()} at {address}")
            memory.kernel.host  # noqa: B018  loaded before the first request
            reply_openings("")  # as are the languages, all of which it asks
            memory.kernel.parts.operator().refresh_soon()
            app = create_app(memory, config, loopback=loopback)
            server = NotifyingServer(settings_of(app, config), lambda: ready(f"http://{address}"))
            # uvicorn raises the signal that it was stopped by again; by then all is done
            for name in (signal.SIGTERM, signal.SIGINT):
                signal.signal(name, lambda *_: None)
            server.run([listener])


def settings_of(app: FastAPI, config: ServeConfig) -> uvicorn.Config:
    """How uvicorn serves the app."""
    return uvicorn.Config(
        app,
        http=HeaderDeadline,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(config.grace_s),
        timeout_keep_alive=75,  # clients think between two calls
        lifespan="on",
        proxy_headers=bool(config.proxies),  # else whoever calls says where from
        forwarded_allow_ips=list(config.proxies),
    )


class HeaderDeadline(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # one of two classes, as is installed
    """A connection that is closed where the header of a request takes too long: each takes a descriptor of the
    process, and the header tells first whose it is."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_S, transport.close)

    def connection_lost(self, error: Exception | None) -> None:
        self._met()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self._deadline is None and before.response_complete:
            self._deadline = self.loop.call_later(HEADER_S, self.transport.close)
        super().data_received(data)
        if self.cycle is not before:
            self._met()

    def _met(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None


class NotifyingServer(uvicorn.Server):
    """Calls back once it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _require_key(memory: Memory, host: str, loopback: bool) -> None:
    kernel = memory.kernel
    now, keys = kernel.vault.now(), kernel.services.governing.keys()
    if not loopback and all(key.revoked or (key.until and key.until <= now) for key in keys):
        raise Denied(
            f"{host} can be reached from other machines, and there is no key that callers could show; make one with "
            f"`memos key add USER --vault {kernel.vault.path}`, or listen on 127.0.0.1"
        )


def listening(host: str, port: int) -> socket.socket:
    """Raises InputError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else answers wait 40 ms for an ACK
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
            stack.pop_all()  # it stays open
        return listener
    except OSError as error:
        raise InputError(
            f"{host}:{port} cannot be listened at ({error.strerror or error}); give another with --host and --port"
        ) from None
