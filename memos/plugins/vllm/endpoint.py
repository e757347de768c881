"""vLLM on a server that somebody else runs: its OpenAI-compatible routes, with ids in place of text."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from memos.errors import FingerprintMismatch
from memos.plugins.vllm.server import Decoded, Decoding, VllmFailed

SAMPLE = "Mira's 3 keys aren't in the Café; they're at home.\n- yes"  # what tokenizers split differently


class Tokenizes(Protocol):
    """The host's tokenizer."""

    def __call__(self, text: str, *, add_special_tokens: bool) -> Any: ...


class Endpoint:
    """A `Server` at http://HOST:PORT."""

    def __init__(self, url: str, key_from: str, timeout_s: float, tokenizer: Tokenizes) -> None:
        """Raises VllmFailed where nothing answers, FingerprintMismatch where its tokenizer is another."""
        self.url, self._timeout_s = url.rstrip("/").removesuffix("/v1"), timeout_s
        key = os.environ.get(key_from, "")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.model = str(self._json("/v1/models")["data"][0]["id"])
        asked = {"model": self.model, "prompt": SAMPLE, "add_special_tokens": False}
        theirs = list(self._json("/tokenize", asked)["tokens"])
        if theirs != list(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]):
            raise FingerprintMismatch(
                f"{self.url} serves {self.model}, whose tokenizer splits text otherwise than that of model.path; let "
                f"both name the same model"
            )

    def decode(self, asked: Decoding) -> Generator[Decoded, None, None]:
        body = {
            "model": asked.adapter or self.model,
            "prompt": list(asked.ids),
            **asked.params,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if asked.kv:
            body |= {"cache_salt": asked.kv, "kv_transfer_params": asked.transfer}
        try:
            with self._opened("/v1/completions", body) as reply:
                for line in reply:
                    if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                        yield _decoded(json.loads(line[6:]))
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise VllmFailed(f"{self.url} broke off: {type(error).__name__}: {error}") from error

    def load_adapter(self, name: str, folder: Path) -> None:
        self._json("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def drop_adapter(self, name: str) -> None:
        self._json("/v1/unload_lora_adapter", {"lora_name": name})

    def forget(self) -> None:
        """A server without VLLM_SERVER_DEV_MODE has no such route: its blocks stay until others take their place, under
        salts that no request names any more."""
        try:
            self._json("/reset_prefix_cache", {})
        except VllmFailed as error:
            if not isinstance(error.__cause__, HTTPError) or error.__cause__.code != 404:
                raise

    def _opened(self, route: str, body: dict[str, Any] | None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        try:
            return urlopen(Request(self.url + route, content, self._headers), timeout=self._timeout_s)
        except HTTPError as error:
            why = error.read(300).decode(errors="replace").strip()
            raise VllmFailed(f"{self.url}{route} refused: {error.code} {why}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise VllmFailed(
                f"{self.url} does not answer ({error}); start `vllm serve`, or correct model.engine_options.endpoint"
            ) from error

    def _json(self, route: str, body: dict[str, Any] | None = None) -> Any:
        """Raises VllmFailed."""
        with self._opened(route, body) as reply:
            content = reply.read()
        try:
            return json.loads(content) if content[:1] in (b"{", b"[") else None
        except ValueError as error:
            raise VllmFailed(f"{self.url}{route} answered no JSON: {content[:80]!r}") from error


def _decoded(event: dict[str, Any]) -> Decoded:
    """One event of a stream. Raises VllmFailed for one that reports an error."""
    if "error" in event:
        raise VllmFailed(f"vLLM ended the request: {event['error']}")
    cached = ((event.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Decoded(tuple(i for choice in event["choices"] for i in choice.get("token_ids") or ()), int(cached))
