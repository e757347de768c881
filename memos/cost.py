"""Counts what a call costs the local model: how often it was asked, and the tokens it read and wrote.

Counted where the model runs, for whoever has opened `metered` around it; knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Cost:
    """Of the calls within one `metered`. tokens: that went through the model; those that were there as KV did not."""

    model_calls: int = 0
    tokens: int = 0


_open: ContextVar[tuple[Cost, ...]] = ContextVar("costs", default=())


@contextmanager
def metered() -> Iterator[Cost]:
    """Count what the model does within it, in this thread and in those that carry its context on (asyncio does).

    Training, which runs in a process of its own, is not counted: a promotion tells its seconds.
    """
    cost = Cost()
    token = _open.set((*_open.get(), cost))
    try:
        yield cost
    finally:
        _open.reset(token)


def spent(calls: int, tokens: int) -> None:
    """The model was asked so often, and read and wrote so many tokens."""
    for cost in _open.get():
        cost.model_calls += calls
        cost.tokens += tokens
