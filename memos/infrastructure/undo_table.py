"""How to take back what messages have done: of each pipeline the calls that undo it. Must not know what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from memos.infrastructure.store import Store
from memos.ops import Call

KEPT = 1000  # of a user, the latest


class UndoTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def put(self, id: str, user_id: str, calls: Sequence[Call]) -> None:
        """Within a transaction."""
        self._db.write(
            "INSERT INTO pipelines (id, user_id, at, undo) VALUES (?, ?, ?, ?)",
            *(id, user_id, self._db.stamp(), json.dumps(calls, ensure_ascii=False)),
        )
        self._db.write(
            """DELETE FROM pipelines WHERE user_id = ? AND n <=
               (SELECT n FROM pipelines WHERE user_id = ? ORDER BY n DESC LIMIT 1 OFFSET ?)""",
            *(user_id, user_id, KEPT),
        )

    def take(self, id: str, user_id: str) -> list[Call] | None:
        """Within a transaction: the calls, which nobody can take again; None where the user has no such pipeline."""
        for (calls,) in self._db.rows("SELECT undo FROM pipelines WHERE id = ? AND user_id = ?", id, user_id):
            if self._db.write("DELETE FROM pipelines WHERE id = ?", id):
                return [(name, tuple(values), named) for name, values, named in json.loads(calls)]
        return None

    def forget(self, user_id: str, names: Callable[[str], bool]) -> None:
        """Within a transaction: those of a user, and those that name the user. names: true of words that do."""
        self._db.write("DELETE FROM pipelines WHERE user_id = ?", user_id)
        for n, calls in self._db.rows("SELECT n, undo FROM pipelines"):
            said = (word for _, values, named in json.loads(calls) for word in (*values, *named.values()))
            if any(isinstance(word, str) and names(word) for word in said):
                self._db.write("DELETE FROM pipelines WHERE n = ?", n)
