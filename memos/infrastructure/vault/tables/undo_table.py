"""For each pipeline, the calls that take it back; must not know what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from memos.infrastructure.vault.store.store import Store
from memos.ops import Call

KEPT = 1000  # of a user, the latest


class UndoTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def put(self, id: str, user_id: str, calls: Sequence[Call]) -> None:
        """Within a transaction."""
        self._db.write(
            "INSERT INTO pipelines (id, user_id, at, undo) VALUES (?, ?, ?, ?)",
            *(id, user_id, self._db.stamp(), _kept(calls)),
        )
        self._db.write(
            """DELETE FROM pipelines WHERE user_id = ? AND n <=
               (SELECT n FROM pipelines WHERE user_id = ? ORDER BY n DESC LIMIT 1 OFFSET ?)""",
            *(user_id, user_id, KEPT),
        )

    def take(self, id: str, user_id: str) -> Call | None:
        """Within a transaction: the last call that is left, which nobody can take again; None where there is none."""
        calls = self._left(id, user_id)
        if not calls:
            return None
        name, values, named = calls.pop()
        if calls:
            self._db.write("UPDATE pipelines SET undo = ? WHERE id = ?", _kept(calls), id)
        else:
            self._db.write("DELETE FROM pipelines WHERE id = ?", id)
        return name, tuple(values), named

    def give_back(self, id: str, user_id: str, call: Call) -> None:
        """Within a transaction: a call that was taken was not made."""
        calls = [*self._left(id, user_id), call]
        self._db.write("DELETE FROM pipelines WHERE id = ?", id)
        self.put(id, user_id, calls)

    def _left(self, id: str, user_id: str) -> list[Call]:
        rows = self._db.rows("SELECT undo FROM pipelines WHERE id = ? AND user_id = ?", id, user_id)
        return [call for (calls,) in rows for call in json.loads(calls)]

    def forget(self, user_id: str, names: Callable[[str], bool]) -> None:
        """Within a transaction: those of a user, and those that name the user. names: true of words that do."""
        self._db.write("DELETE FROM pipelines WHERE user_id = ?", user_id)
        for n, calls in self._db.rows("SELECT n, undo FROM pipelines"):
            said = (word for _, values, named in json.loads(calls) for word in (*values, *named.values()))
            if any(isinstance(word, str) and names(word) for word in said):
                self._db.write("DELETE FROM pipelines WHERE n = ?", n)


def _kept(calls: Sequence[Call]) -> str:
    return json.dumps(calls, ensure_ascii=False)
