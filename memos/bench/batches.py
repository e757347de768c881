"""Answers several requests together, as a server of batches would; the front door asks one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from memos.config import DecodeConfig
from memos.infrastructure.host.host import Host, Request
from memos.infrastructure.host.model.decode import ModelAnswer


def answer_all(host: Host, requests: Sequence[Request], decode: DecodeConfig = DecodeConfig()) -> list[ModelAnswer]:
    """Answers of a batch in its order, each as if asked alone, whatever adapters the requests name."""
    rows = [host.row(request, decode) for request in requests]
    return host.complete(rows, decode, [request.adapters for request in requests])
