"""Plain policies to compare with: each ranks in one way, takes what fits, and moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memos.config import Config
from memos.cube import Form, MemCube
from memos.operation.policies.policy import Ranked, Reads, Score, Segment, as_one, best_first

Heat = Callable[[Sequence[MemCube], datetime], float]


@dataclass(frozen=True)
class Baseline:
    """score: how it ranks. heat: what keeps its place in memory. reads: see `Policy`."""

    score: Score
    heat: Heat = lambda cubes, now: 0.0
    reads: Reads = "found"

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        return best_first(hits)

    def admit(
        self, ranked: Ranked, groups: Sequence[Segment], need: Callable[[MemCube], int], room: int
    ) -> list[Segment]:
        """The first that fit; of all that there is, the latest."""
        found = [cube for cube, _ in ranked]
        if self.reads == "all":
            found = sorted((c for group in groups for c in group.cubes), key=lambda c: c.order, reverse=True)
        return as_one(found, need, room)

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        return None

    def cold(self, heat: float) -> bool:
        return False


def _since(last: datetime, now: datetime) -> float:
    """From 0 to 1, the later the more."""
    return 1 / (1 + max(0.0, (now - last).total_seconds()))


PLAIN_RAG = Baseline(lambda signals: signals.near)  # by meaning alone
KEYWORDS = Baseline(lambda signals: signals.words)  # by words alone
# by when it was said, whatever the question
RECENCY = Baseline(lambda signals: -signals.age, lambda cubes, now: _since(max(c.order[0] for c in cubes), now))
# by its last use, or its keeping where there was none; the least recently used leaves first
LRU = Baseline(
    lambda signals: -signals.idle,
    lambda cubes, now: _since(max(c.usage.last_recalled or c.header.created for c in cubes), now),
)
FULL_CONTEXT = Baseline(lambda signals: -signals.age, reads="all")  # no retrieval: everything goes into the prompt


def _maker(baseline: Baseline) -> Callable[[Config], Baseline]:
    """What an entry point names: none of these has anything to configure."""
    return lambda config: baseline


plain_rag, keywords, recency, lru, full_context = map(_maker, (PLAIN_RAG, KEYWORDS, RECENCY, LRU, FULL_CONTEXT))
