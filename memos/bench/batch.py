"""`memos bench batch`: requests answered together against the same one by one, and clients that chat with a server.

The requests are of three kinds in turn: memories as text, as KV of their own, and as KV that all of a kind share.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from memos.bench.scenes import scene
from memos.bench.serve import Client, served
from memos.config import DecodeConfig, ModelConfig
from memos.errors import MemosError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.decode import ModelAnswer
from memos.infrastructure.host.request import Request
from memos.interface.doors.api.memory import Memory
from memos.plugins.progress import Show

MODELS = ("memos-small", "shape:cpu-126m")
_FACTS, _CUBES, _KINDS = 16, 2, 3
_FEW = 8  # requests at once, that are measured beside 1, half of the clients and all
_CHATS = 3  # that each client asks


@dataclass(frozen=True)
class _Run:
    """Requests asked together once: tokens a second, those of one by one, and answers that differ from these."""

    rate: float
    alone: float
    differ: int


def answer_all(host: Host, requests: Sequence[Request], decode: DecodeConfig = DecodeConfig()) -> list[ModelAnswer]:
    """Answers of a padded batch in its order, each as if asked alone, whatever adapters the requests name."""
    rows = [host.row(request, decode) for request in requests]
    return host.complete(rows, decode, [request.adapters for request in requests])


def bench_batch(
    models: Sequence[str], clients: int, tokens: int, repeats: int, seed: int, show: Show
) -> dict[str, Any]:
    """Rows by model and by how many requests are answered at once.

    tokens_per_s: of answers, which go on to `tokens` each; ratio: to one by one, each time right before.
    differing_answers: that are not those of one by one. chat: over HTTP, from clients with memories of their own, to a
    server as it is by default. Medians of the repeats.
    """
    sizes = sorted({1, min(_FEW, clients), max(1, clients // 2), clients})
    rows, device, decode = list[dict[str, Any]](), "", DecodeConfig(max_new_tokens=tokens)
    done, steps = 0, len(models) * (repeats + len(sizes))
    for model in models:
        host = Host.load(ModelConfig(path=model, requests_at_once=clients))
        host.decoder.ends = set()  # all answers are of one length, so that tokens a second can be compared
        device, requests = str(host.model.device), _requests(host, clients, seed)
        for size in sizes:  # warms up
            _together(host, requests[:size], decode)
        runs = list[list[_Run]]()
        for _ in range(repeats):
            runs.append(_beside(host, requests, sizes, decode))
            show("batch", done := done + 1, steps)
        for size, some in zip(sizes, zip(*runs, strict=True), strict=True):
            ms = _chats(model, size)
            rows.append(
                {
                    "model": model,
                    "requests_at_once": size,
                    "tokens_per_s": median(run.rate for run in some),
                    "one_by_one_tokens_per_s": median(run.alone for run in some),
                    "ratio": median(run.rate / run.alone for run in some),
                    "chat_p50_ms": median(ms),
                    "chat_p95_ms": ms[int((len(ms) - 1) * 0.95)],
                    "differing_answers": max(run.differ for run in some),
                }
            )
            show("batch", done := done + 1, steps)
    return {"device": device, "rows": rows}


def _requests(host: Host, n: int, seed: int) -> list[Request]:
    """A third over memories as text, a third over KV of their own, a third over KV that they share."""
    drawn = [scene(f"batch {seed} {i}", _CUBES, _FACTS) for i in range(n)]
    shared = drawn[0].cubes[0], (host.encode(drawn[0].cubes[0]),)
    requests = list[Request]()
    for i, one in enumerate(drawn):
        question = ({"role": "user", "content": one.one[0].question},)
        match i % _KINDS:
            case 0:
                requests.append(Request(question, one.cubes[0]))
            case 1:
                requests.append(Request(question, one.cubes[0], (host.encode(one.cubes[0]),)))
            case _:
                requests.append(Request(question, *shared))
    return requests


def _beside(host: Host, requests: Sequence[Request], sizes: Sequence[int], decode: DecodeConfig) -> list[_Run]:
    """For each size, the first so many one by one, and right after it together: a machine's speed changes."""
    alone, out = list[ModelAnswer](), list[_Run]()
    for size in sizes:
        alone += [host.answer(request, decode) for request in requests[len(alone) : size]]
        rate, answers = _together(host, requests[:size], decode)
        differ = sum(one.ids != other.ids for one, other in zip(answers, alone, strict=True))
        out.append(_Run(rate, sum(len(a.ids) for a in alone) / sum(a.seconds for a in alone), differ))
    return out


def _together(host: Host, requests: Sequence[Request], decode: DecodeConfig) -> tuple[float, list[ModelAnswer]]:
    """Tokens a second, each asked by a thread of its own, and the answers."""
    with ThreadPoolExecutor(len(requests)) as threads:
        began = time.perf_counter()
        answers = list(threads.map(lambda request: host.answer(request, decode), requests))
        seconds = time.perf_counter() - began
    return sum(len(a.ids) for a in answers) / seconds, answers


def _chats(model: str, clients: int) -> list[float]:
    """ms that each chat takes, in order of size, as so many clients ask a server at once."""
    drawn = [scene(f"client {n}", 1, 2 * _CHATS) for n in range(clients)]
    with tempfile.TemporaryDirectory() as folder:
        vault = Path(folder) / "vault"
        with Memory(vault=vault) as memory:
            keys = [memory.kernel.services.governing.add_key(f"client{n}")[0] for n in range(clients)]
            for key, one in zip(keys, drawn, strict=True):
                memory.as_(key).add(" ".join(one.cubes[0]))
        with served(vault, f"model.path={model}") as (_, url), ThreadPoolExecutor(clients) as threads:
            _client(url, keys[0], ["Who?"])  # the model is loaded
            for key in keys:  # many that are new at once would be taken for guesses
                with closing(Client(url, key)) as client:
                    client.call("get_all")
            asked = [[probe.question for probe in one.one[:_CHATS]] for one in drawn]
            told = threads.map(lambda pair: _client(url, *pair), zip(keys, asked, strict=True))
            return sorted(ms for each in told for ms in each)


def _client(url: str, key: str, questions: Sequence[str]) -> list[float]:
    """ms of each question, one after the other. Raises MemosError for one that is not answered."""
    out = list[float]()
    with closing(Client(url, key)) as client:
        for question in questions:
            began = time.perf_counter()
            status, reply = client.call("chat", messages=question)
            if status != 200:
                raise MemosError(f"the server answers {status} to {question!r}: {str(reply)[:200]}")
            out.append((time.perf_counter() - began) * 1e3)
    return out
