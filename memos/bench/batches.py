"""`memos bench batches`: answers several requests together, as a server would; the front door asks one at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from memos.bench.scenes import scene
from memos.config import DecodeConfig
from memos.infrastructure.host.host import Host, Request
from memos.infrastructure.host.model.decode import ModelAnswer
from memos.interface.doors.progress import Show

SIZES = (1, 4, 16, 64)
_FACTS = 16  # of a memory
_DECODE = DecodeConfig(max_new_tokens=32)


def answer_all(host: Host, requests: Sequence[Request], decode: DecodeConfig = DecodeConfig()) -> list[ModelAnswer]:
    """Answers of a batch in its order, each as if asked alone, whatever adapters the requests name."""
    rows = [host.row(request, decode) for request in requests]
    return host.complete(rows, decode, [request.adapters for request in requests])


def bench_batches(host: Host, sizes: Sequence[int], repeats: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each size of a batch, over memories as text and over their KV, each request with its own: medians.

    tokens_s: of answers, in all; ttft_ms: until the first of the batch. Without KV, of text alone.
    """
    drawn = [scene(f"batch {seed} {n}", 1, _FACTS) for n in range(max(sizes))]
    asked = [Request(({"role": "user", "content": one.one[0].question},), one.cubes[0]) for one in drawn]
    forms = {"text": asked}
    if host.capability.exact:
        forms["KV"] = [Request(ask.messages, ask.memories, (host.encode(ask.memories),)) for ask in asked]
    rows = list[dict[str, Any]]()
    for n, size in enumerate(sizes, start=1):
        for form, requests in forms.items():
            runs = [_run(host, requests[:size]) for _ in range(repeats + 1)][1:]  # the first warms up
            seconds, tokens, ttft = (statistics.median(values) for values in zip(*runs, strict=True))
            rows.append(
                {
                    "form": form,
                    "batch": size,
                    "ms": seconds * 1e3,
                    "tokens": tokens,
                    "tokens_s": tokens / seconds,
                    "ttft_ms": ttft * 1e3,
                }
            )
        show("batches", n, len(sizes))
    return {"model": host.describe(), "memory_tokens": len(host.prompts.prefix(asked[0].memories)), "rows": rows}


def _run(host: Host, requests: Sequence[Request]) -> tuple[float, int, float]:
    """Seconds, tokens of answers, and seconds to the first of them."""
    began = time.perf_counter()
    answers = answer_all(host, requests, _DECODE)
    return time.perf_counter() - began, sum(len(answer.ids) for answer in answers), min(a.ttft_s for a in answers)
