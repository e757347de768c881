"""Which memories were replaced by which others, from when on, and since when that is known.

Must not know why one replaces another.
"""

from __future__ import annotations

from datetime import datetime

from memos.cube import MemCube, State
from memos.infrastructure.vault.cubes.cube_rows import parsed
from memos.infrastructure.vault.store.clock import moment
from memos.infrastructure.vault.store.rows import kept
from memos.infrastructure.vault.store.store import Store


class SupersededTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def put(self, id: str, by: str, since: datetime) -> None:
        """Write down that a memory is no longer true from `since` on, because of another."""
        with self._db.transaction():
            values = (id, by, kept(since), self._db.stamp())
            self._db.write("INSERT INTO superseded (id, by, since, at) VALUES (?, ?, ?, ?)", *values)

    def by(self, id: str) -> str | None:
        """The id of what has replaced a memory, or None where nothing has."""
        rows = self._db.rows("SELECT by FROM superseded WHERE id = ? AND undone IS NULL ORDER BY n DESC LIMIT 1", id)
        return str(rows[0][0]) if rows else None

    def last(self) -> int:
        """How often a memory was replaced: see `after`."""
        return int(self._db.rows("SELECT coalesce(max(n), 0) FROM superseded")[0][0])

    def after(self, n: int) -> list[str]:
        """The ids of the memories that were replaced after the n-th time, and are."""
        return [id for (id,) in self._db.rows("SELECT id FROM superseded WHERE n > ? AND undone IS NULL ORDER BY n", n)]

    def undo(self, id: str) -> None:
        """Take that back, if there is anything to take back."""
        with self._db.transaction():
            self._db.write("UPDATE superseded SET undone = ? WHERE id = ? AND undone IS NULL", self._db.stamp(), id)

    def of_user(self, user_id: str, known_at: datetime) -> dict[str, datetime]:
        """The memories of a user that were known to be replaced at a time, each with when it ceased to be true."""
        sql = """SELECT s.id, s.since FROM superseded s JOIN heads h ON h.id = s.id
                 WHERE h.user_id = ? AND s.at <= ? AND (s.undone IS NULL OR s.undone > ?) ORDER BY s.n"""
        at = kept(known_at)
        return {id: moment(since) for id, since in self._db.rows(sql, user_id, at, at)}

    def known(self, user_id: str, at: datetime) -> list[MemCube]:
        """The texts of a user as they were at a time, in canonical order: in the version and the state of then."""
        sql = """SELECT v.json, (SELECT t.state FROM transitions t WHERE t.id = h.id AND t.at <= ?
                                 ORDER BY t.n DESC LIMIT 1) AS state
                 FROM heads h JOIN versions v ON v.id = h.id AND v.version =
                      (SELECT max(w.version) FROM versions w WHERE w.id = h.id AND w.at <= ?)
                 WHERE h.user_id = ? AND h.form = 'plaintext' AND h.words != ''"""
        rows = self._db.rows(sql, kept(at), kept(at), user_id)
        cubes = (parsed(content).model_copy(update={"state": State(state)}) for content, state in rows)
        return sorted(cubes, key=lambda cube: cube.order)
