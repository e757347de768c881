"""Which cubes are in quarantine and why, what was released, and how many came from an origin lately.

Must not know by which rule.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple

from memos.infrastructure.vault.store.store import IN, Store


class Suspect(NamedTuple):
    """A cube in quarantine."""

    id: str
    why: str
    at: datetime


class QuarantineTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def put(self, id: str, why: str) -> None:
        """Within a transaction."""
        self._db.write("DELETE FROM quarantine WHERE id = ?", id)
        self._db.write("INSERT INTO quarantine VALUES (?, ?, ?)", id, why, self._db.stamp())

    def release(self, id: str, judged: str) -> bool:
        """Within a transaction; False if it was not there. judged: names what was found harmless."""
        if not self._db.write("DELETE FROM quarantine WHERE id = ?", id):
            return False
        self._db.write("INSERT OR IGNORE INTO released VALUES (?, ?)", id, judged)
        return True

    def was_released(self, id: str, judged: str) -> bool:
        """True if just this of the cube was found harmless before."""
        return bool(self._db.rows("SELECT 1 FROM released WHERE id = ? AND judged = ?", id, judged))

    def of(self, ids: list[str]) -> list[Suspect]:
        """Those of `ids` that are there, the latest last."""
        sql = f"SELECT id, why, at FROM quarantine WHERE id {IN} ORDER BY at, id"
        rows = self._db.rows(sql, json.dumps(ids))
        return [Suspect(id, why, datetime.fromisoformat(at)) for id, why, at in rows]

    def all(self) -> list[Suspect]:
        """The latest last."""
        rows = self._db.rows("SELECT id, why, at FROM quarantine ORDER BY at, id")
        return [Suspect(id, why, datetime.fromisoformat(at)) for id, why, at in rows]

    def arrived(self, user_id: str, origin: str, window_s: float) -> int:
        """Within a transaction: count one more from this origin; how many came within the window, with it."""
        now = self._db.now()
        since = (now - timedelta(seconds=window_s)).isoformat()
        self._db.write("DELETE FROM newcomers WHERE at < ?", since)
        self._db.write("INSERT INTO newcomers VALUES (?, ?, ?)", user_id, origin, now.isoformat())
        sql = "SELECT count(*) FROM newcomers WHERE user_id = ? AND origin = ? AND at >= ?"
        return int(self._db.rows(sql, user_id, origin, since)[0][0])

    def forget(self, user_id: str) -> None:
        """Within a transaction: what came from whom to this user."""
        self._db.write("DELETE FROM newcomers WHERE user_id = ?", user_id)
