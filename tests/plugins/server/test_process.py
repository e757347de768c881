"""`memos serve` as a process of its own, from its start to SIGTERM, with a collector of OpenTelemetry beside it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from memos import Memory
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.interface.doors.cli.app import app
from memos.plugins.care import care
from tests.plugins.server.conftest import endless, refused, until

SAID, ASKED = "Kim lives in Rome.", "Where does Kim live?"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STREAM = {"messages": [{"role": "user", "content": ASKED}], "stream": True, "max_tokens": 300}


@contextmanager
def collecting() -> Iterator[tuple[str, list[bytes]]]:
    """A collector of OTLP over HTTP: its address, and the bodies of what was sent to it."""
    sent: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            sent.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Life:
    """What was seen of one server. second: what a second one on its vault and one on its port said. rest: events of an
    answer that came after SIGTERM, sent at `told_ns`."""

    vault: Path
    url: str
    second: tuple[str, str]
    rest: list[str]
    told_ns: int
    code: int
    log: str
    sent: list[bytes]

    @property
    def spans(self) -> dict[str, Any]:
        requests = map(ExportTraceServiceRequest.FromString, self.sent)
        groups = [group for request in requests for group in request.resource_spans]
        assert all(_values(group.resource.attributes)["service.name"] == "memos" for group in groups)
        return {span.name: span for group in groups for scope in group.scope_spans for span in scope.spans}


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: one.value.int_value or one.value.string_value for one in attributes}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A server whose model goes on and on; told to stop in the middle of an answer."""
    folder = tmp_path_factory.mktemp("process")
    tokenizer = AutoTokenizer.from_pretrained(model_path(SMALL_MODEL))
    endless(tokenizer).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    options = ["--vault", str(folder / "vault"), "--port", "0", "--set", f"model.path={folder / 'model'}"]
    with collecting() as (collector, sent), (folder / "log").open("w+", encoding="utf-8") as log:
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "memos", "serve", *options]
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout
            found = re.search(r"http://\S+?(?=;)", server.stdout.readline())
            assert found, (folder / "log").read_text("utf-8")
            with httpx.Client(base_url=found[0], timeout=60) as client:
                client.post("/v1/memory/add", json={"messages": SAID}).raise_for_status()
                parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
                client.post("/v1/memory/get", json={"memory_id": "Kim"}, headers=parent)
                port = found[0].rpartition(":")[2]
                second = (
                    not_started("--vault", str(folder / "vault"), "--port", "0"),
                    not_started("--vault", str(folder / "other"), "--port", port),
                )
                with client.stream("POST", "/v1/chat/completions", json=STREAM) as reply:
                    lines = reply.iter_lines()
                    next(lines)
                    told_ns = time.time_ns()
                    server.send_signal(signal.SIGTERM)
                    until(lambda: refused(found[0]))
                    rest = [line.removeprefix("data: ") for line in lines if line]
            code = server.wait(60)
        finally:
            server.kill()
            server.wait()
        yield Life(folder / "vault", found[0], second, rest, told_ns, code, (folder / "log").read_text("utf-8"), sent)


def not_started(*options: str) -> str:
    """What a server says that does not start."""
    done = CliRunner().invoke(app, ["serve", *options])
    assert done.exit_code == 1
    return done.stderr


@pytest.mark.slow
def test_told_to_stop_it_lets_a_stream_end_and_leaves_without_an_error(life: Life) -> None:
    assert life.rest[-1] == "[DONE]"
    assert json.loads(life.rest[-2])["choices"][0]["finish_reason"] == "length"  # told in full
    assert life.spans["POST /v1/chat/completions"].end_time_unix_nano > life.told_ns
    assert life.code == 0
    assert "Traceback" not in life.log


def test_it_leaves_the_vault_closed_and_sound(life: Life) -> None:
    assert (life.vault / "sums.json").exists()  # there only while nobody has the vault open
    assert not (life.vault / "vault.db-wal").exists()
    assert care.check(life.vault) == []
    with Memory(vault=life.vault) as memory:
        assert [item["memory"] for item in memory.get_all()["results"]] == [SAID]


def test_a_second_server_on_its_vault_or_its_port_is_refused(life: Life) -> None:
    at = life.url.removeprefix("http://")
    of_vault, of_port = life.second
    assert re.search(rf"{life.vault} has a server already, process \d+ at {at}; use that one, stop it, or", of_vault)
    assert f"{at} cannot be listened at (Address already in use); give another with --host and --port" in of_port


def test_beyond_this_machine_it_does_not_listen_without_a_key(tmp_path: Path) -> None:
    def beyond() -> str:
        return not_started("--vault", str(tmp_path), "--host", "0.0.0.0", "--port", "0")

    without = beyond()
    assert "0.0.0.0 can be reached from other machines, and there is no key that callers could show" in without
    assert f"`memos key add USER --vault {tmp_path}`, or listen on 127.0.0.1" in without
    with Memory(vault=tmp_path) as memory:
        memory.kernel.services.governing.revoke_key(memory.kernel.services.governing.add_key("ada")[1].id)
    assert beyond() == without  # a key that opens nothing is none


def test_its_spans_arrive_at_a_collector_and_tell_nothing_of_what_was_said(life: Life) -> None:
    spans = life.spans
    request, call = spans["POST /v1/memory/get"], spans["memos get"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)  # goes on with the caller's
    assert (call.trace_id, call.parent_span_id) == (request.trace_id, request.span_id)
    told = {"http.request.method": "POST", "http.route": "/v1/memory/get", "http.response.status_code": 404}
    assert _values(request.attributes).items() >= told.items()
    assert (call.status.code, call.status.message) == (call.status.STATUS_CODE_ERROR, "NotFound")
    assert {"memos add", "memos chat"} <= {*spans}
    for body in life.sent:
        assert b"Kim" not in body and b"Rome" not in body
