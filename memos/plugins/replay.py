"""Keeps the tiers of a policy that finds by stages of its own equal to what replaying the whole vault gives.

    memories in view and their uses, in the order in which they came -> keep, use, keep, ... -> tiers -> recall

What came since the last time is replayed on top. Where something earlier is gone, or is not what it was, all is
replayed anew, so that nothing stays of it. Knows no ranking and no rights: who may see what arrives as a `View`, whose
owner's memories are replayed whole, and all others as they are shown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memos.cube import MemCube, Text
from memos.operation.finding.mem_operator import FoundMemory, MemOperator
from memos.operation.policies.policy import Floats
from memos.plugins.policies.tiers import Note, Tiers

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.finding.catalog import View

MAX_CACHED_VIEWS = 64
Came = tuple[datetime, int, str]  # when, a memory (0) or a use (1), which memory


class Tiered(Protocol):
    """A policy that keeps tiers (`memos.kernel.access.Staged`)."""

    def tiers(self) -> Tiers:
        """Empty ones."""
        ...


@dataclass
class _Replayed:
    """Tiers, and what they were made of."""

    tiers: Tiers
    change: int = 0  # of the vault
    uses: int = 0  # number of the last one
    last: Came | None = None
    versions: dict[str, int] = field(default_factory=dict)
    vectors: Mapping[str, Floats] = field(default_factory=dict)


class Replay:
    """The tiers of each view. Thread safe."""

    def __init__(self, vault: MemVault, operator: MemOperator, policy: Tiered) -> None:
        self._vault, self._operator, self._policy = vault, operator, policy
        self._replayed: dict[View, _Replayed] = {}
        self._lock = threading.Lock()

    def search(self, query: str, k: int | None, view: View, within: View) -> list[FoundMemory]:
        """What the tiers of `view` give for a query, as far as it is in `within`: the k nearest, best first, or all in
        the order in which it is worth room. Raises InputError."""
        vector, words = self._operator.read_query(query, within)
        with self._lock:
            recalled = self._brought_up(view).recall(vector, words, self._operator.versions(within), k)
        return [FoundMemory(one.id, one.score, one.why) for one in recalled]

    def tiers(self, view: View) -> Tiers:
        """As they are now."""
        with self._lock:
            return self._brought_up(view)

    def _brought_up(self, view: View) -> Tiers:
        replayed = self._replayed.pop(view, None) or _Replayed(self._policy.tiers())
        with self._operator.steady():
            now = self._operator.versions(view)
            change = self._operator.read
            vectors = replayed.vectors if change == replayed.change else self._operator.vectors(now)
        if not (self._holds(replayed, now, vectors) and self._append(replayed, view, now, vectors)):
            replayed = _Replayed(self._policy.tiers())
            self._append(replayed, view, now, vectors)
        replayed.change = change
        while len(self._replayed) >= MAX_CACHED_VIEWS:
            del self._replayed[next(iter(self._replayed))]
        self._replayed[view] = replayed
        return replayed.tiers

    def _holds(self, replayed: _Replayed, now: Mapping[str, int], vectors: Mapping[str, Floats]) -> bool:
        """True if all that was replayed is still there, and as it was. The vector of a note changes with what is said
        around it; what that decides is decided once it is settled."""
        if vectors is replayed.vectors:
            return True
        return all(
            now.get(id) == version
            and (np.array_equal(replayed.vectors[id], vectors[id]) or not replayed.tiers.settled(id))
            for id, version in replayed.versions.items()
        )

    def _as_read(self, cube: MemCube, view: View) -> MemCube:
        return cube if cube.rights.owner == view.owner else self._vault.guard.as_shown(cube)

    def _append(self, replayed: _Replayed, view: View, now: Mapping[str, int], vectors: Mapping[str, Floats]) -> bool:
        """Replay what is new. False, and nothing is done, where some of it came before what was replayed last."""
        read = (self._as_read(c, view) for c in self._vault.at(id for id in now if id not in replayed.versions))
        new = {c.id: c for c in read if isinstance(c.payload, Text)}
        uses = self._vault.usage.uses(replayed.uses)
        events: list[tuple[Came, list[str]]] = [((c.header.created, 0, c.id), [c.id]) for c in new.values()]
        events += [((at, 1, ""), [id for _, id, _ in of]) for at, of in groupby(uses, key=lambda use: use[2])]
        events.sort()
        if replayed.last and events and events[0][0] < replayed.last:
            return False
        if vectors is not replayed.vectors:
            replayed.tiers.revise(vectors)
        for (when, kind, _), ids in events:
            if kind:
                replayed.tiers.use(ids, when)
            else:
                replayed.tiers.keep(_note(new[ids[0]], vectors[ids[0]]))
        replayed.last = events[-1][0] if events else replayed.last
        replayed.uses = uses[-1][0] if uses else replayed.uses
        replayed.versions |= {id: now[id] for id in new}
        replayed.vectors = vectors
        return True


def _note(cube: MemCube, vector: Floats) -> Note:
    assert isinstance(cube.payload, Text)
    header, turn = cube.header, next((source.id for source in cube.sources), "")
    who = header.speaker or header.role
    return Note(cube.id, cube.words, who, header.thread, header.created, vector, cube.payload.facts, turn, header.said)
