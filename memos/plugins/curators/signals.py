"""What a curator ranks by beside the kernel's signals: looked up when it is asked for, one value for each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from memos.cube import MemCube
from memos.operation.policies.policy import Floats, Signals

DAY_S = 86_400.0


@dataclass(frozen=True)
class Recalled:
    """A memory that a policy gives: its nearness to the query, and why."""

    id: str
    score: float
    why: dict[str, float]


class StoredLink(NamedTuple):
    """A typed, weighted link from memory a to memory b, with the time in which it is true."""

    a: str
    b: str
    kind: str
    weight: float
    since: datetime | None
    until: datetime | None


class Neighbour(NamedTuple):
    """A link of a memory, and the memory at its other end."""

    link: StoredLink
    cube: MemCube


class SignalSource(Protocol):
    """Where these are looked up."""

    def links(self, *ids: str) -> list[StoredLink]:
        """Those in force at or from these memories, to what the caller may see."""
        ...

    def scores(self, name: str) -> dict[str, float]:
        """A number that is kept with memories, by their ids."""
        ...

    def cubes(self, ids: Iterable[str]) -> list[MemCube]:
        """The memories of these ids, as the caller may read them."""
        ...

    def emotions(self, texts: Sequence[str]) -> Floats:
        """[texts, 8]: how far each shows joy, acceptance, fear, surprise, sadness, disgust, anger, anticipation
        (Plutchik's eight, as in Emotional RAG, 2410.23041)."""
        ...


@dataclass(frozen=True)
class CuratorSignals:
    """plain: the kernel's signals. query: that was asked."""

    plain: Signals
    query: str
    source: SignalSource

    def score(self, name: str, default: float = 0.0) -> Floats:
        """A number that is kept with each: `importance`, or one of the system's own."""
        kept = self.source.scores(name)
        return np.array([kept.get(id, default) for id in self.plain.ids], np.float32)

    @cached_property
    def memories(self) -> list[MemCube]:
        found = {cube.id: cube for cube in self.source.cubes(self.plain.ids)}
        return [found[id] for id in self.plain.ids]

    @cached_property
    def importance(self) -> Floats:
        return self.score("importance")

    @cached_property
    def recalls(self) -> Floats:
        """How often each was used."""
        return np.array([cube.usage.recalls for cube in self.memories], np.float32)

    @cached_property
    def retention(self) -> Floats:
        """exp(-t / S) since the last use, t in days, S = 1 + recalls (MemoryBank, 2305.10250, section 2.3)."""
        return np.exp(-self.plain.idle / DAY_S / (1 + self.recalls)).astype(np.float32)

    @cached_property
    def links(self) -> Floats:
        """The weight of all links of each."""
        weight = dict.fromkeys(self.plain.ids, 0.0)
        for link in self.source.links(*weight):
            for end in (link.a, link.b):
                if end in weight:
                    weight[end] += link.weight
        return np.array([weight[id] for id in self.plain.ids], np.float32)

    @cached_property
    def emotion(self) -> Floats:
        """Cosine of its emotions and those of the query."""
        [asked, *there] = self.source.emotions([self.query, *(cube.words for cube in self.memories)])
        return np.asarray(there, np.float32) @ asked

    def of_kind(self, *kinds: str) -> Floats:
        """1 for these kinds."""
        return np.array([cube.header.kind in kinds for cube in self.memories], np.float32)

    def tagged(self, tag: str) -> Floats:
        """1 where it has the tag."""
        return np.array([tag in cube.header.tags for cube in self.memories], np.float32)
