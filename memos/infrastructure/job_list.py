"""Work that outlives a request, written down before it begins. Must not know how any of it is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple

from memos.cube import new_id
from memos.errors import NotFound
from memos.infrastructure.database import Database, now

Ending = Literal["done", "undone", "interrupted"]


class Job(NamedTuple):
    """Ids in the payload, never text: a job outlives a deletion. Its `sources` are "id@version"."""

    id: str
    kind: str
    payload: dict[str, Any]
    started: datetime
    note: str = ""  # how far it is, or how it ended


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

    def end(self, id: str, state: Ending, note: str) -> None:
        """Raises NotFound. An interrupted job can be taken up again."""
        with self._db.transaction():
            if not self._end(state, note, id):
                raise NotFound(f"no running job {id}: it has ended already, or never began")

    def end_cut_off(self, resumable: Callable[[str], bool]) -> None:
        """To be called while nobody else has the vault open: then a running job is one whose process died."""
        with self._db.transaction():
            for job in self.all("running"):
                state = "interrupted" if resumable(job.id) else "undone"
                self._end(state, "its process died", job.id)
            for job in self.all("cancelled"):
                self._end("undone", "cancelled", job.id)

    def resume(self, kind: str, payload: dict[str, Any]) -> str | None:
        """Take up an interrupted job of this kind and payload, if there is one; its id."""
        with self._db.transaction():
            for job in self.all("interrupted", kind):
                if job.payload == payload:
                    self._db.write("UPDATE jobs SET state = 'running', ended = NULL, note = '' WHERE id = ?", job.id)
                    return job.id
        return None

    def note(self, id: str, note: str) -> bool:
        """How far a running job is. False if it was cancelled meanwhile."""
        with self._db.transaction():
            return bool(self._db.write("UPDATE jobs SET note = ? WHERE id = ? AND state = 'running'", note, id))

    def cancel(self, id: str) -> None:
        """Whoever does a running job learns of it with its next note, and ends it. Raises NotFound."""
        with self._db.transaction():
            running = self._db.write("UPDATE jobs SET state = 'cancelled' WHERE id = ? AND state = 'running'", id)
            cut_off = "UPDATE jobs SET state = 'undone', note = 'cancelled' WHERE id = ? AND state = 'interrupted'"
            if not running and not self._db.write(cut_off, id):
                raise NotFound(f"no running or interrupted job {id}; see `memos jobs`")

    def abandon(self, sources: Iterable[str]) -> None:
        """End interrupted jobs on cubes that have changed."""
        gone = set(sources)
        with self._db.transaction():
            stale = [
                job.id for job in self.all("interrupted") if gone & {s.split("@")[0] for s in job.payload["sources"]}
            ]
            for id in stale:
                self._db.write("UPDATE jobs SET state = 'undone', note = 'a source has changed' WHERE id = ?", id)

    def _end(self, state: str, note: str, id: str) -> int:
        sql = "UPDATE jobs SET state = ?, ended = ?, note = ? WHERE state IN ('running', 'cancelled') AND id = ?"
        return self._db.write(sql, state, now(), note, id)

    def all(self, state: str, kind: str | None = None) -> list[Job]:
        """Those in this state, of one kind or of every kind; oldest first."""
        rows = self._db.rows(
            "SELECT id, kind, payload, started, note FROM jobs WHERE state = ? AND kind = ifnull(?, kind) "
            "ORDER BY started, id",
            *(state, kind),
        )
        return [Job(id, kind, json.loads(text), datetime.fromisoformat(at), note) for id, kind, text, at, note in rows]
