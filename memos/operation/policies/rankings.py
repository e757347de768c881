"""Ways to rank what was found, by name: the default policy's, and plain ones to compare it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from memos.errors import InputError
from memos.operation.policies.policy import Floats, Signals

Score = Callable[[Signals], npt.NDArray[Any]]


def plain_rag(signals: Signals) -> Floats:
    """By meaning alone."""
    return signals.near


def keywords(signals: Signals) -> Floats:
    """By words alone."""
    return signals.words


def recency(signals: Signals) -> Floats:
    """The latest first, whatever the question."""
    return -signals.age


BASELINES: dict[str, Score] = {"plain-rag": plain_rag, "keywords": keywords, "recency": recency}


def ranking(name: str, default: Score) -> Score:
    """The ranking of that name; `memos` is the default's. Raises InputError."""
    if name == "memos":
        return default
    if name not in BASELINES:
        raise InputError(f"no policy {name!r} ranks memories; those that do: memos, {', '.join(BASELINES)}")
    return BASELINES[name]
