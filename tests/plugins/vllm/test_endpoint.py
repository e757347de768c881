"""The routes of `vllm serve` that memos uses, over real HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memos.config import DecodeConfig
from memos.errors import ConfigError, FingerprintMismatch, MemosError
from memos.plugins.vllm.endpoint import SAMPLE, Endpoint
from memos.plugins.vllm.options import VllmOptions
from memos.plugins.vllm.server import Decoded, Decoding, VllmFailed

IDS = [len(word) for word in SAMPLE.split()]
Routes = dict[str, Callable[[dict[str, Any]], tuple[int, bytes]]]


class Tokenizer:
    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [len(word) for word in text.split()]}


@contextmanager
def served(routes: Routes) -> Iterator[tuple[str, list[tuple[str, dict[str, Any], str]]]]:
    """A server's address, and what it was asked: route, body, authorization."""
    asked = list[tuple[str, dict[str, Any], str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            asked.append((self.path, body, self.headers.get("Authorization", "")))
            status, content = routes[self.path](body) if self.path in routes else (404, b"Not Found")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", asked
        http.shutdown()


def as_json(value: object) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    return lambda _: (200, json.dumps(value).encode())


def events(*values: object) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    lines = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    return lambda _: (200, lines + b"data: [DONE]\n\n")


KNOWN: Routes = {
    "/v1/models": as_json({"data": [{"id": "small"}, {"id": "memos-1"}]}),
    "/tokenize": as_json({"tokens": IDS}),
}


def endpoint(url: str) -> Endpoint:
    return Endpoint(url, "MY_KEY", 5, Tokenizer())


def test_ids_go_there_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    usage = {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 30}}}
    answer = events({"choices": [{"token_ids": [4, 5]}]}, {"choices": [{"token_ids": [6]}]}, usage)
    asked_for = Decoding((1, 2, 3), DecodeConfig(max_new_tokens=7), {9}, kv="0" * 32, adapter="memos-1")
    with served(KNOWN | {"/v1/completions": answer}) as (url, asked):
        assert list(endpoint(url + "/v1/").decode(asked_for)) == [
            Decoded((4, 5)),
            Decoded((6,)),
            Decoded((), 30),
        ]
    route, body, key = asked[-1]
    assert (route, key) == ("/v1/completions", "Bearer secret")
    assert body["prompt"] == [1, 2, 3] and body["model"] == "memos-1" and body["stop_token_ids"] == [9]
    assert body["max_tokens"] == 7 and body["temperature"] == 0 and body["stream"] and body["return_token_ids"]
    assert body["cache_salt"] == "0" * 32 and body["kv_transfer_params"] == {"memos_kv": "0" * 32}


def test_text_has_no_salt() -> None:
    with served(KNOWN | {"/v1/completions": events()}) as (url, asked):
        assert list(endpoint(url).decode(Decoding((1,), DecodeConfig(), {9}))) == []
    _, body, key = asked[-1]
    assert body["model"] == "small" and "cache_salt" not in body and "kv_transfer_params" not in body and key == ""


def test_adapters_are_loaded_and_unloaded_by_name(tmp_path: Path) -> None:
    plain = {f"/v1/{what}_lora_adapter": lambda _: (200, b"Success") for what in ("load", "unload")}
    with served(KNOWN | plain) as (url, asked):
        there = endpoint(url)
        there.load_adapter("memos-1", tmp_path)
        there.drop_adapter("memos-1")
        there.forget()  # which this server does not know
    assert [(route, body) for route, body, _ in asked[-3:]] == [
        ("/v1/load_lora_adapter", {"lora_name": "memos-1", "lora_path": str(tmp_path)}),
        ("/v1/unload_lora_adapter", {"lora_name": "memos-1"}),
        ("/reset_prefix_cache", {}),
    ]


@pytest.mark.parametrize(
    "bad, why",
    [
        (lambda _: (400, b'{"error": "no such model"}'), "refused: 400"),
        (lambda _: (200, b"data: {half"), "broke off"),
        (events({"error": {"message": "engine died"}}), "engine died"),
    ],
)
def test_what_fails_is_said(bad: Callable[[dict[str, Any]], tuple[int, bytes]], why: str) -> None:
    with served(KNOWN | {"/v1/completions": bad}) as (url, _), pytest.raises(VllmFailed, match=why):
        list(endpoint(url).decode(Decoding((1,), DecodeConfig(), {9})))


def test_another_tokenizer_is_refused_and_silence_too() -> None:
    with served(KNOWN | {"/tokenize": as_json({"tokens": [*IDS, 1]})}) as (url, _):
        with pytest.raises(FingerprintMismatch, match="tokenizer"):
            endpoint(url)
    with pytest.raises(VllmFailed, match="does not answer"):
        endpoint(url)


@pytest.mark.parametrize(
    "given, why",
    [({"endpont": "x"}, "did you mean endpoint"), ({"exchange_bytes": -1}, "exchange_bytes"), ({"timeout_s": 0}, "0")],
)
def test_a_mistake_in_an_option_is_named(given: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        VllmOptions.of(given)
    assert "model.engine_options." in str(error.value)


def test_the_own_engine_takes_no_options() -> None:
    from memos.config import ModelConfig
    from memos.infrastructure.host.engines import transformers

    with pytest.raises(MemosError, match="engine_options"):
        transformers(ModelConfig(engine_options={"endpoint": "x"}))


@pytest.mark.slow
def test_serve_takes_an_engine_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memos", "serve", "--vault", str(tmp_path / "vault"), "--port", "0"]
    unreachable = ["--engine", "vllm", "--set", "model.engine_options.endpoint=http://127.0.0.1:9"]
    for asked, why in ((["--engine", "vlm"], "did you mean vllm?"), (unreachable, "start `vllm serve`, or correct")):
        done = subprocess.run([*command, *asked], capture_output=True, text=True)
        assert done.returncode and why in done.stderr
