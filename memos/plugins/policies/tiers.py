"""Defines what a policy that finds by stages of its own keeps; knows no stores and no rights.

It is made of nothing but the notes and uses that were replayed to it, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from memos.cube import Fact
from memos.operation.policies.policy import Floats
from memos.plugins.curators.signals import Recalled


@dataclass(frozen=True)
class Note:
    """A memory as it is replayed."""

    id: str
    text: str
    speaker: str
    thread: str
    kept: datetime
    vector: Floats = field(compare=False)
    facts: tuple[Fact, ...] = ()
    turn: str = ""  # the memory that it is a part of or was read in
    said: datetime | None = None


class Tiers(Protocol):
    """What a staged policy has made of the notes and uses so far. One memory is always in the same place, whether it
    came just now or was replayed from the vault."""

    def keep(self, note: Note) -> None:
        """The next note, in the order of their keeping."""
        ...

    def use(self, ids: Collection[str], when: datetime) -> None:
        """Memories that one answer was given from."""
        ...

    def settled(self, id: str) -> bool:
        """True where another vector of this note would have changed what was decided."""
        ...

    def revise(self, vectors: Mapping[str, Floats]) -> None:
        """Vectors of notes that are not settled."""
        ...

    def recall(
        self, vector: Floats, words: frozenset[str], allowed: Collection[str], k: int | None = None
    ) -> list[Recalled]:
        """What of the allowed notes belongs to a query: the k best, best first, or all in the order in which it is
        worth room."""
        ...
