"""Work that outlives a request, written down before it begins. Must not know how any of it is done."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal, NamedTuple

from memos.cube import new_id
from memos.errors import NotFound
from memos.infrastructure.database import Database, now


class Job(NamedTuple):
    """Ids in the payload, never text: a job outlives a deletion."""

    id: str
    kind: str
    payload: dict[str, Any]
    started: datetime
    note: str = ""  # how it ended


class JobList:
    def __init__(self, db: Database) -> None:
        self._db = db

    def start(self, kind: str, payload: dict[str, Any]) -> str:
        id = new_id()
        with self._db.transaction():
            self._db.write(
                "INSERT INTO jobs (id, kind, payload, state, started) VALUES (?, ?, ?, 'running', ?)",
                *(id, kind, json.dumps(payload), now()),
            )
        return id

    def end(self, id: str, state: Literal["done", "undone"], note: str) -> None:
        """Raises NotFound."""
        with self._db.transaction():
            if not self._end(state, note, "id = ?", id):
                raise NotFound(f"no running job {id}: it has ended already, or never began")

    def end_cut_off(self) -> None:
        """To be called while nobody else has the vault open: then a running job is one whose process died."""
        with self._db.transaction():
            self._end("undone", "its process died", "true")

    def _end(self, state: str, note: str, which: str, *values: str) -> int:
        sql = f"UPDATE jobs SET state = ?, ended = ?, note = ? WHERE state = 'running' AND {which}"
        return self._db.write(sql, state, now(), note, *values)

    def all(self, state: str, kind: str | None = None) -> list[Job]:
        """Those in this state, of one kind or of every kind; oldest first."""
        rows = self._db.rows(
            "SELECT id, kind, payload, started, note FROM jobs WHERE state = ? AND kind = ifnull(?, kind) "
            "ORDER BY started, id",
            *(state, kind),
        )
        return [Job(id, kind, json.loads(text), datetime.fromisoformat(at), note) for id, kind, text, at, note in rows]
