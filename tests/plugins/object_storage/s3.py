"""An S3 server of moto's, and a line to it that fails as networks do."""

from __future__ import annotations

import http.client
import logging
import random
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

# a put that is lost arrives unseen; one that is late arrives after the client has given it up
Fault = Literal["refused", "500", "slow", "cut", "lost", "late"]
FAULTS: tuple[Fault, ...] = ("refused", "500", "slow", "cut", "lost", "late")
SLOW_S = 1.0  # more than the clients of these tests wait


class S3:
    """Without its log."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        self.port = int(self._server.get_host_and_port()[1])
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.stop()

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        who = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"Authorization": who, "Content-Type": "application/octet-stream"}
        made = urllib.request.Request(f"{self.endpoint}/{path}", body, headers, method=method)
        with urllib.request.urlopen(made) as answer:
            return bytes(answer.read())

    def bucket(self, name: str) -> str:
        self.ask("PUT", name)
        return name

    def keys(self, bucket: str) -> list[str]:
        """All of a bucket."""
        listed = self.ask("GET", f"{bucket}?list-type=2&max-keys=1000").decode()
        return [part.split("</Key>")[0] for part in listed.split("<Key>")[1:]]


class FaultyLine:
    """Forwards each request, or fails it as `fails` says: None for one that goes well."""

    def __init__(self, port: int) -> None:
        """port: of the server."""
        self.fails: Callable[[str, str], Fault | None] = lambda method, path: None
        self.answers: Callable[[str, Any], tuple[int, str] | None] = lambda method, headers: None
        self.asked, self.failed = Counter[str](), Counter[str]()
        self.late, self.going_on = list[threading.Thread](), 0
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def _any(self) -> None:
                with line._lock:
                    line.going_on += 1
                try:
                    line._handle(self, port)
                finally:
                    with line._lock:
                        line.going_on -= 1

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _any

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                """A client that has gone is no news."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._lock = threading.Lock()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def at_random(self, seed: int, share: float) -> None:
        """Fail this share of all requests, each in one of the ways that it can fail."""
        chance = random.Random(seed)

        def draw(method: str, path: str) -> Fault | None:
            with self._lock:
                if chance.random() >= share:
                    return None
                ways = FAULTS if method == "PUT" else tuple(f for f in FAULTS if f not in ("lost", "late"))
                return chance.choice(ways)

        self.fails = draw

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def settle(self) -> None:
        """What is under way arrives, also of a client that has given it up."""
        for thread in self.late:
            thread.join()
        while self.going_on:
            time.sleep(0.01)

    def _handle(self, request: BaseHTTPRequestHandler, port: int) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.asked[request.command] += 1
        if given := self.answers(request.command, request.headers):
            self._answer(request, given[0], given[1].encode())
            return
        fault = self.fails(request.command, request.path)
        if fault:
            self.failed[fault] += 1
        send = lambda: _sent(port, request.command, request.path, body, dict(request.headers))  # noqa: E731
        match fault:
            case "refused":
                request.close_connection = True
                request.connection.close()
            case "500":
                self._answer(request, 500, b"<Error><Code>InternalError</Code><Message>so it is</Message></Error>")
            case "lost":
                send()
                request.close_connection = True
                request.connection.close()
            case "late":
                self.late.append(threading.Thread(target=lambda: (time.sleep(SLOW_S), send())))
                self.late[-1].start()
                request.close_connection = True
                request.connection.close()
            case _:
                if fault == "slow":
                    time.sleep(SLOW_S)
                self._answer(request, *send(), cut=fault == "cut")

    def _answer(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        cut: bool = False,
    ) -> None:
        request.send_response_only(status)
        for name, value in (headers or {}).items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                request.send_header(name, value)
        length = (headers or {}).get("Content-Length", str(len(body))) if request.command == "HEAD" else str(len(body))
        request.send_header("Content-Length", length)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            request.close_connection = True
            request.connection.close()


def _sent(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()
