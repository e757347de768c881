"""Answers several requests together, as a server of batches would; the front door asks one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from memos.config import DecodeConfig
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.host import Host, Request
from memos.infrastructure.host.model.capability import has_experts, limit_of
from memos.infrastructure.host.model.decode import DecodeRow, ModelAnswer


def answer_all(host: Host, requests: Sequence[Request], decode: DecodeConfig = DecodeConfig()) -> list[ModelAnswer]:
    """Answers of a batch in its order, each as if asked alone, whatever adapters the requests name."""
    out: dict[int, ModelAnswer] = {}
    began = time.perf_counter()
    rows = {n: host.row(request, decode) for n, request in enumerate(requests)}
    for batch in _batches(host, rows, [request.adapters for request in requests], decode):
        model = host.model_under([requests[n].adapters for n in batch])
        done = host.decoder.complete(model, [rows[n] for n in batch], decode, began)
        out |= zip(batch, done, strict=True)
    return [out[n] for n in range(len(requests))]


def _batches(
    host: Host, rows: dict[int, DecodeRow], adapters: Sequence[Stack], decode: DecodeConfig
) -> Iterable[list[int]]:
    """Rows that can share a forward without changing one another's answers."""
    # beams come and go as rows of their own; experts see tokens, not rows
    apart, limit = decode.beams > 1 or has_experts(host.model), limit_of(host.model.config)
    out: dict[object, list[int]] = {}
    for n, row in rows.items():
        key: object = adapters[n] if apart else None
        if row.renewed or limit:  # a mask of its own; frequencies by the longest row
            key = ("alone", n)
        elif row.past and not host.capability.batches:  # no padding between a cache and its question
            key = ("tokens", len(row.ids), key)
        out.setdefault(key, []).append(n)
    return out.values()
