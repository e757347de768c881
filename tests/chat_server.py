"""A server that speaks OpenAI's protocol, as well or as badly as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Said:
    """One answer of the server. body: in place of one of OpenAI's form. Wait: seconds before it comes."""

    text: str = ""
    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0.0


Answers = Callable[[int, dict[str, Any]], Said]  # (how many calls came before, what is asked)


@contextmanager
def chat_server(answers: Answers) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its URL, and what it has been asked so far."""
    asked, lock = list[dict[str, Any]](), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                before = len(asked)
                asked.append({**request, "authorization": self.headers.get("Authorization", "")})
            said = answers(before, request)
            time.sleep(said.wait)
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            told = {"choices": [{"message": {"content": said.text}}], "usage": usage}
            body = json.dumps(told).encode() if said.body is None else said.body
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/v1", asked
        http.shutdown()
