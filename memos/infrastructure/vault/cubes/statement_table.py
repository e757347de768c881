"""Finds memories by what they say: their words, their tags, and the facts that they state."""

from __future__ import annotations

import json
from collections.abc import Iterable

from memos.cube import Fact, MemCube, State
from memos.infrastructure.vault.cubes.cube_rows import CURRENT, STATE, CubeRows
from memos.infrastructure.vault.store.rows import words
from memos.infrastructure.vault.store.store import IN, Store


class StatementTable:
    def __init__(self, db: Store) -> None:
        self._db, self._rows = db, CubeRows(db)

    def saying(self, texts: Iterable[str], user_id: str) -> list[MemCube]:
        """The cubes of a user, of every state, whose current text has the words of one of these, in canonical order."""
        digests = json.dumps([words(text) for text in texts])
        return self._rows.current(f"AND h.words {IN} AND h.user_id = ?", digests, user_id)

    def tagged(self, tag: str, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The texts of a user in one of these states that have a tag, in canonical order."""
        sql = CURRENT + f"AND h.tags != '' AND h.words != '' AND h.user_id = ? AND {STATE} {IN}"
        cubes = self._rows.read(sql, user_id, self._rows.at(), json.dumps(list(states)))
        return [cube for cube in cubes if tag in cube.header.tags]

    def agreeing(self, fact: Fact, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that state a fact's very subject, relation and object."""
        known = "SELECT id FROM facts WHERE user_id = ? AND subject = ? AND relation = ? AND object = ?"
        about = (user_id, fact.subject.casefold(), fact.relation, fact.object.casefold())
        sql = CURRENT + f"AND h.id IN ({known}) AND {STATE} {IN}"
        return self._rows.read(sql, *about, self._rows.at(), json.dumps(list(states)))

    def stating(self, fact: Fact, modes: Iterable[str], user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that say anything in one of these modes about the fact's subject
        and relation (of every relation, where it names none), in canonical order. What says the very same is left out,
        unless it says that it has ended, or this does.
        """
        relation = "AND relation IN (?, '')" if fact.relation else ""
        known = f"""SELECT id FROM facts WHERE user_id = ? AND subject = ? {relation} AND mode {IN}
                    AND (object != ? OR mode = 'ended' OR ? = 'ended')"""
        about = (fact.subject.casefold(), *([fact.relation] if fact.relation else []), json.dumps(list(modes)))
        sql = CURRENT + f"AND h.id IN ({known}) AND {STATE} {IN}"
        values = (user_id, *about, fact.object.casefold(), fact.mode, self._rows.at(), json.dumps(list(states)))
        return self._rows.read(sql, *values)
