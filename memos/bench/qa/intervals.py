"""How sure a mean is, and whether two systems differ: bootstrap over conversations, tests in pairs; deterministic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memos.errors import InputError

RESAMPLES = 10_000
LEVEL = 0.95
_BLOCK = 1_000  # resamples that are drawn at once: a thousand questions take 8 MB then

Over = Literal["conversations", "questions"]


@dataclass(frozen=True)
class Interval:
    """A mean over questions, and where it lies in LEVEL of the resamples. over: what was drawn again: conversations,
    as questions about one are alike; of a single conversation its questions, which says nothing about others."""

    mean: float
    low: float
    high: float
    over: Over
    questions: int


@dataclass(frozen=True)
class Difference:
    """What the first system has above the second on the same questions. p: how often signs drawn by chance give a mean
    that is as far from zero."""

    mean: float
    low: float
    high: float
    p: float
    over: Over
    questions: int


def interval(values: Sequence[float], conversations: Sequence[str], seed: int = 0) -> Interval:
    """values: one for each question; conversations: the one that each is about. The order does not matter. Raises
    InputError."""
    groups = _groups(values, conversations)
    over: Over = "conversations" if len(groups) > 1 else "questions"
    units = groups if len(groups) > 1 else [np.array([value]) for value in groups[0]]
    sums, counts = (np.array([how(unit) for unit in units], dtype=float) for how in (np.sum, np.size))
    rng, means = np.random.default_rng(seed), list[NDArray[np.float64]]()
    for start in range(0, RESAMPLES, _BLOCK):
        drawn = rng.integers(len(units), size=(min(_BLOCK, RESAMPLES - start), len(units)))
        means.append(sums[drawn].sum(1) / counts[drawn].sum(1))
    low, high = np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), over, len(values))


def difference(
    values: Sequence[float], others: Sequence[float], conversations: Sequence[str], seed: int = 0
) -> Difference:
    """values and others: of two systems, in the same order of questions. The interval is that of the differences; p
    is of a test that flips the sign of each question's difference. Raises InputError."""
    if len(values) != len(others):
        raise InputError(f"{len(values)} values and {len(others)} others make no pairs; give one each a question")
    differences = [one - other for one, other in zip(values, others, strict=True)]
    found = interval(differences, conversations, seed)
    flat = np.concatenate(_groups(differences, conversations))
    rng, seen = np.random.default_rng(seed), abs(flat.sum()) - 1e-9 * len(flat)  # no difference by rounding alone
    as_far = 0
    for start in range(0, RESAMPLES, _BLOCK):
        signs = rng.integers(2, size=(min(_BLOCK, RESAMPLES - start), len(flat))) * 2 - 1
        as_far += int((np.abs(signs @ flat) >= seen).sum())
    p = (as_far + 1) / (RESAMPLES + 1)  # what was seen is one of the draws, so that p is never 0
    return Difference(found.mean, found.low, found.high, p, found.over, found.questions)


def _groups(values: Sequence[float], conversations: Sequence[str]) -> list[NDArray[np.float64]]:
    """The values of each conversation, all in an order of their own."""
    if not values or len(values) != len(conversations):
        raise InputError(
            f"{len(values)} values for {len(conversations)} questions; give one for each question, and at least one"
        )
    groups = defaultdict[str, list[float]](list)
    for value, conversation in zip(values, conversations, strict=True):
        groups[conversation].append(value)
    return [np.sort(np.array(groups[name], dtype=float)) for name in sorted(groups)]
