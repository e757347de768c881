"""Computes how far apart two memories are in the graph of entities that facts join.

Kept from the facts of the rows, so that it is whole again whenever the vault has been read. Knows no ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from memos.cube import Fact
from memos.operation.finding.columns import Mask, Parts, Rows, at, beneath, pack, unpack

_Key = tuple[str, str, str]  # subject, relation and object, casefolded
_HUB = 64  # rows from which an entity says nothing of what belongs together: it is named everywhere


class EntityGraph:
    """Rows and the entities that their facts name; names in any case are the same."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}  # of each entity
        self._facts: dict[int, list[_Key]] = {}  # of each row that has any
        # of each fact with its object or its subject left blank, as a question asks for it
        self._stating: dict[_Key, list[int]] = {}

    def add(self, row: int, facts: Iterable[Fact]) -> None:
        for fact in dict.fromkeys(map(_key, facts)):
            self._join(row, fact)

    def _join(self, row: int, fact: _Key) -> None:
        subject, relation, object = fact
        facts = self._facts.setdefault(row, [])
        for name in {subject, object} - {"", *_names(facts)}:
            self._rows.setdefault(name, []).append(row)
        facts.append(fact)
        for blank in ((subject, relation, ""), ("", relation, object)):
            self._stating.setdefault(blank, []).append(row)

    def packed(self, place: Rows) -> Parts:
        """place: [rows], where each moves to; -1 if it is left out."""
        codes: dict[str, int] = {}
        stated = [
            (row, *(codes.setdefault(word, len(codes)) for word in fact))
            for row, facts in zip(place[list(self._facts)].tolist(), self._facts.values(), strict=True)
            if row >= 0
            for fact in facts
        ]
        rows, *facts = np.array(stated, np.int64).reshape(-1, 4).T
        return {"rows": rows, "facts": np.stack(facts, axis=1), **beneath("word", pack(list(codes)))}

    @classmethod
    def unpacked(cls, parts: Parts) -> EntityGraph:
        graph, words = cls(), unpack(at("word", parts))
        for row, (subject, relation, object) in zip(parts["rows"].tolist(), parts["facts"].tolist(), strict=True):
            graph._join(row, (words[subject], words[relation], words[object]))
        return graph

    def stating(self, asks: Iterable[Fact], allowed: Mask) -> Rows:
        """The latest of the allowed rows that state one of the facts asked for, which have a blank."""
        rows = np.array([row for fact in asks for row in self._stating.get(_key(fact), ())], np.int64)
        return rows[allowed[rows]][-_HUB:]

    def linked(self, names: Sequence[str], hops: int, allowed: Mask) -> dict[int, int]:
        """The allowed rows that are at most `hops` facts away from these names, each with its number of facts: 1 for
        a row that names one of them. What is not allowed leads nowhere."""
        found: dict[int, int] = {}
        reached, ahead = set[str](), {name.casefold() for name in names}
        for hop in range(1, hops + 1):
            rows = {row for name in ahead for row in self._few(name, allowed) if row not in found}
            found |= dict.fromkeys(rows, hop)
            reached |= ahead
            ahead = {name for row in rows for name in _names(self._facts[row])} - reached
        return found

    def _few(self, name: str, allowed: Mask) -> list[int]:
        rows = np.array(self._rows.get(name, ()), np.int64)
        rows = rows[allowed[rows]]
        return rows.tolist() if len(rows) <= _HUB else []


def _key(fact: Fact) -> _Key:
    return fact.subject.casefold(), fact.relation, fact.object.casefold()


def _names(facts: Iterable[_Key]) -> set[str]:
    return {name for subject, _, object in facts for name in (subject, object) if name}
