"""Asks a server that speaks OpenAI's protocol, such as vLLM or llama.cpp's; knows nothing of what is asked."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from memos.errors import MemosError

log = logging.getLogger("memos")
Messages = Sequence[Mapping[str, str]]  # role, content
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # between two tries of one call; doubled each time
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # statuses that may be others the next time


class EndpointError(MemosError):
    """An endpoint gave no answer. hopeless: it would give none to any other call either."""

    def __init__(self, message: str, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless


@dataclass(frozen=True)
class ChatAnswer:
    """tokens: (read, written) as the server counts them; where it does not, 0."""

    text: str
    tokens: tuple[int, int]
    seconds: float
    tries: int


class ChatEndpoint:
    """One model of one server. key_from: the environment variable that holds its key. tries: of a call that fails in a
    way that passes: no connection, no answer in time, too many requests, a fault of the server, nonsense."""

    def __init__(self, url: str, model: str, key_from: str, timeout_s: float, tries: int = 1) -> None:
        self.url, self.model = url.rstrip("/"), model
        self._timeout_s, self._tries = timeout_s, tries
        self._key = os.environ.get(key_from, "")

    def ask(self, messages: Messages, **more: object) -> ChatAnswer:
        """more: what the body has beside. Raises EndpointError."""
        body = json.dumps({"model": self.model, "messages": messages, "temperature": 0, **more}).encode()
        wait, why = FIRST_WAIT_S, ""
        for tried in range(1, self._tries + 1):
            began = time.perf_counter()
            try:
                text, tokens = self._posted(body)
                return ChatAnswer(text, tokens, time.perf_counter() - began, tried)
            except HTTPError as error:
                why = f"{error.code} {error.reason}: {error.read(200).decode(errors='replace').strip()}"
                if error.code not in AGAIN:
                    raise EndpointError(f"{self.url} refused: {why}", error.code in (401, 403, 404, 405)) from None
                wait = max(wait, _asked_to_wait(error.headers.get("Retry-After", "")))
            except (OSError, HTTPException, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                why = f"{type(error).__name__}: {error}"
            if tried < self._tries:
                time.sleep(min(wait, LONGEST_WAIT_S))
                wait *= 2
        raise EndpointError(f"{self.url} gave no answer in {self._tries} tries ({why})")

    def _posted(self, body: bytes) -> tuple[str, tuple[int, int]]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        with urlopen(Request(f"{self.url}/chat/completions", body, headers), timeout=self._timeout_s) as reply:
            told = json.load(reply)
        text = told["choices"][0]["message"]["content"]
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"content is {text!r}, and no answer")
        usage = told.get("usage") or {}
        written = int(usage.get("completion_tokens") or 0)
        return text, (int(usage.get("prompt_tokens") or int(usage.get("total_tokens") or 0) - written), written)


def _asked_to_wait(header: str) -> float:
    """Seconds, of a number of them or a date (RFC 9110, 10.2.3); 0 for anything else."""
    try:
        return float(header)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(header).timestamp() - time.time()
    except ValueError:
        return 0.0
