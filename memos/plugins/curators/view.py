"""What a curator sees: the caller's memories as that one may read them, the system's own and what was said.

Knows rights by the view of the indexes alone. A memory of another system is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from memos.cube import ANSWERING, EPISODE, PASSAGE, Form, MemCube, undated
from memos.errors import InputError
from memos.interface.reading.mem_reader import TOOL_TRACE
from memos.operation.policies.policy import Floats, Scores, Signals
from memos.plugins.curators.carrying_out import MADE, maker, segment_of
from memos.plugins.curators.signals import CuratorSignals, Recalled, StoredLink
from memos.plugins.curators.tables import CuratorTables

if TYPE_CHECKING:
    from datetime import datetime

    from memos.kernel.wiring import Parts
    from memos.lazy import Lazy
    from memos.operation.finding.catalog import View
    from memos.rights import Caller

SAID = (EPISODE, PASSAGE, TOOL_TRACE)
MAX_CANDIDATES = 256  # that a search of a curator's looks at, of which some are another system's


class MemoriesInView:
    """A `CuratorView` of one caller and one system, for one run. until: by time.monotonic, from when on it refuses, so
    that a curator that goes round in circles ends."""

    def __init__(
        self,
        parts: Parts,
        tables: CuratorTables,
        caller: Caller,
        system: str,
        within: View | None,
        until: float,
        emotions: Lazy[Floats],
    ) -> None:
        self._emotions = emotions  # [8, dim]: what each is called by
        self._parts, self._tables, self._caller, self._system, self._until = parts, tables, caller, system, until
        self._within = within or parts.access.view(caller)
        self._as_read = parts.access.as_read(caller)

    @property
    def now(self) -> datetime:
        return self._parts.vault.now()

    def memories(self, *kinds: str) -> list[MemCube]:
        self._check()
        if not kinds or not set(kinds).isdisjoint(SAID):
            users = self._parts.governance.users_in_sight(self._caller)
            found = self._parts.vault.cubes(form=Form.PLAINTEXT, states=ANSWERING, users=users)
            return self._mine(cube for cube in found if not kinds or cube.header.kind in kinds)
        groups = (segment_of(kind, self._system) for kind in kinds)  # which the vault has an index of
        made = (self._parts.vault.cubes(form=Form.PLAINTEXT, states=ANSWERING, segment=group) for group in groups)
        return sorted(self._mine(chain.from_iterable(made)), key=lambda cube: cube.order)

    def at(self, *ids: str) -> list[MemCube]:
        self._check()
        return self._mine(self._parts.vault.at(ids))

    def cubes(self, ids: Iterable[str]) -> list[MemCube]:
        return list(map(self._as_read, self._parts.governance.visible(self._caller, self._parts.vault.at(ids))))

    def near(
        self, query: str, k: int, *kinds: str, score: Callable[[CuratorSignals], Scores] | None = None
    ) -> list[Recalled]:
        self._check()
        if k < 1 or not query.strip():
            return []
        view = replace(self._within, kinds=frozenset(kinds), summaries=False) if kinds else self._within

        def scored(signals: Signals) -> Scores:
            return signals.near if score is None else score(CuratorSignals(signals, query, self))

        found = self._parts.operator().search(query, max(k, min(MAX_CANDIDATES, 4 * k)), view, scored)
        own = {cube.id for cube in self._mine(self._parts.vault.at(one.id for one in found))}
        return [Recalled(one.id, one.score, one.why) for one in found if one.id in own][:k]

    def vectors(self, cubes: Sequence[MemCube]) -> Floats:
        self._check()
        return self.read(*(cube.words for cube in cubes))

    def read(self, *texts: str) -> Floats:
        self._check()
        return np.asarray(self._parts.embedder().embed(texts), np.float32)

    def statements(self, turn: MemCube) -> list[str]:
        header, reader = turn.header, self._parts.reader
        if header.role == "assistant":
            return []
        read = reader.read_turn(header.speaker, turn.words, header.said, header.role)
        day = (header.said or header.created).date()
        found = [one.text for one in read.statements] or ([read.turn.text] if read.turn.facts else [])
        if not found:
            tagged = reader.stated(turn.words, header.speaker, day)
            found = [reader.of_statement(one, header.speaker).text for one in tagged]
        return [undated(text, header.speaker, header.said) for text in found]

    def links(self, *ids: str) -> list[StoredLink]:
        self._check()
        now, found = self.now, self._tables.links(ids)
        held = [one for one in found if (not one.since or one.since <= now) and (not one.until or one.until > now)]
        seen = {cube.id for cube in self.at(*{end for link in held for end in (link.a, link.b)})}
        return [link for link in held if {link.a, link.b} <= seen]

    def scores(self, name: str) -> dict[str, float]:
        return self._tables.scores(self._caller.user_id, name)

    def emotions(self, texts: Sequence[str]) -> Floats:
        near = self.read(*texts) @ self._emotions().T
        away = np.maximum(near - near.mean(1, keepdims=True), 0)
        return np.asarray(away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9), np.float32)

    def _mine(self, cubes: Iterable[MemCube]) -> list[MemCube]:
        there = (c for c in cubes if c.state in ANSWERING and c.text and self._is_seen(c))
        return list(map(self._as_read, self._parts.governance.visible(self._caller, there)))

    def _is_seen(self, cube: MemCube) -> bool:
        return maker(cube) == self._system if cube.header.origin.startswith(MADE) else True

    def _check(self) -> None:
        if time.monotonic() > self._until:
            raise InputError(f"{self._system} has had its time for one run (curators.seconds); nothing was changed")
