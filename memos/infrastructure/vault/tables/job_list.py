"""Jobs that outlive a request, written down before they begin; must not know how any is done.

queued -> running -> done, undone            what nobody waits for; its process killed, it is queued again
          running -> interrupted -> running  what can be taken up where it was
          running -> cancelled -> undone
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Literal, NamedTuple

from memos.cube import new_id
from memos.errors import NotFound
from memos.infrastructure.vault.store.transactions import IN, Store, Table, moment
from memos.ops import Call

Ending = Literal["done", "undone", "interrupted"]
Open = Literal["queued", "running", "interrupted"]
OPEN: tuple[Open, ...] = ("queued", "running", "interrupted")
_TRIES = 3  # after which a job that takes its process along is begun no more


JobPayload = dict[str, Any]  # JSON


class Job(NamedTuple):
    """Ids in the payload, never text: a job outlives a deletion. Its `sources` are "id@version"."""

    id: str
    kind: str
    payload: JobPayload
    started: datetime
    note: str = ""  # how far it is, or how it ended
    state: str = "running"


class JobList:
    def __init__(self, db: Store, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        """transaction: of the vault, after which the work of jobs that have ended is removed."""
        self._db, self._transaction = db, transaction
        self.ended = False  # one did, so that its work can go

    def start(self, kind: str, payload: JobPayload) -> str:
        id = new_id()
        with self._db.transaction():
            self._db.write(
                "INSERT INTO jobs (id, kind, payload, state, started) VALUES (?, ?, ?, 'running', ?)",
                *(id, kind, json.dumps(payload), self._db.stamp()),
            )
        return id

    def queue(self, kind: str, payload: JobPayload) -> str:
        """Write down work for whoever has time; its id, or that of the same work where that is open already."""
        with self._db.transaction():
            for job in (job for state in OPEN for job in self.all(state, kind)):
                if job.payload.get("sources") == payload["sources"]:
                    return job.id
            id = new_id()
            self._db.write(
                "INSERT INTO jobs (id, kind, payload, state, started, tries) VALUES (?, ?, ?, 'queued', ?, 0)",
                *(id, kind, json.dumps(payload), self._db.now()),
            )
        return id

    def take(self, passed: Collection[str] = (), kind: str | None = None) -> Job | None:
        """Begin the oldest job that nobody waits for, of this kind or of every kind, and that is not among those passed
        over; None where none is left. Of several who ask at once, each gets another."""
        with self._db.transaction():
            rows = self._db.rows(
                f"SELECT id FROM jobs WHERE tries IS NOT NULL AND state IN ('queued', 'interrupted') "
                f"AND id NOT {IN} AND kind = ifnull(?, kind) ORDER BY started, id LIMIT 1",
                *(json.dumps(list(passed)), kind),
            )
            if not rows:
                return None
            [(id,)] = rows
            self._db.write("UPDATE jobs SET state = 'running', tries = tries + 1, note = '' WHERE id = ?", id)
            return next(job for job in self.all("running") if job.id == id)

    def describe(self, id: str, payload: JobPayload) -> None:
        """Say more closely what a running job does."""
        with self._db.transaction():
            self._db.write("UPDATE jobs SET payload = ? WHERE id = ?", json.dumps(payload), id)

    def end(self, id: str, state: Ending, note: str = "") -> None:
        """Raises NotFound. An interrupted job can be taken up again."""
        with self._transaction():
            if not self._end(state, note, id):
                raise NotFound(f"no running job {id}: it has ended already, or never began")

    def end_cut_off(self, resumable: Callable[[str], bool]) -> None:
        """To be called while nobody else has the vault open: then a running job is one whose process died."""
        with self._db.transaction():
            for job in self.all("running"):
                state = "interrupted" if resumable(job.id) else "undone"
                again = "UPDATE jobs SET state = 'queued', note = 'its process died' WHERE id = ? AND tries < ?"
                if state == "interrupted" or not self._db.write(again, job.id, _TRIES):
                    self._end(state, "its process died", job.id)
            for job in self.all("cancelled"):
                self._end("undone", "cancelled", job.id)

    def resume(self, kind: str, payload: JobPayload) -> str | None:
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
        with self._transaction():
            self.ended = True
            running = self._db.write("UPDATE jobs SET state = 'cancelled' WHERE id = ? AND state = 'running'", id)
            others = "UPDATE jobs SET state = 'undone', note = 'cancelled' WHERE id = ? AND state IN (?, ?)"
            if not running and not self._db.write(others, id, "interrupted", "queued"):
                raise no_job(id)

    def abandon(self, sources: Iterable[str]) -> None:
        """End interrupted and queued jobs on cubes that have changed."""
        gone = set(sources)
        with self._db.transaction():
            waiting = [*self.all("interrupted"), *self.all("queued")]
            stale = [job.id for job in waiting if gone & {s.split("@")[0] for s in job.payload["sources"]}]
            self.ended |= bool(stale)
            for id in stale:
                self._db.write("UPDATE jobs SET state = 'undone', note = 'a source has changed' WHERE id = ?", id)

    def hush(self, cubes: Iterable[str]) -> None:
        """Within a transaction: how jobs on cubes that are deleted ended is told in one word, without their text."""
        gone = set(cubes)
        for id, payload, note in self._db.rows("SELECT id, payload, note FROM jobs WHERE state = 'undone'"):
            if ": " in note and gone & set(re.findall(r"\w+", payload)):
                self._db.write("UPDATE jobs SET note = ? WHERE id = ?", note.split(": ")[0], id)

    def forget(self, cubes: Iterable[str]) -> int:
        """Within a transaction: remove the jobs, of every state, on any of these cubes; how many."""
        gone, rows = set(cubes), self._db.rows("SELECT id, payload, note FROM jobs")
        on = [id for id, payload, note in rows if gone & {*re.findall(r"\w+", payload), *re.findall(r"\w+", note)}]
        self.ended |= bool(on)
        return sum(self._db.write("DELETE FROM jobs WHERE id = ?", id) for id in on)

    def _end(self, state: str, note: str, id: str) -> int:
        self.ended = True
        sql = "UPDATE jobs SET state = ?, ended = ?, note = ? WHERE state IN ('running', 'cancelled') AND id = ?"
        return self._db.write(sql, state, self._db.stamp(), note, id)

    def all(self, state: str, kind: str | None = None) -> list[Job]:
        """Those in this state, of one kind or of every kind; oldest first."""
        rows = self._db.rows(
            "SELECT id, kind, payload, started, note FROM jobs WHERE state = ? AND kind = ifnull(?, kind) "
            "ORDER BY started, id",
            *(state, kind),
        )
        return [Job(id, kind, json.loads(text), moment(at), note, state) for id, kind, text, at, note in rows]


def sources_of(job: Job) -> list[str]:
    """The ids of the cubes that a job is about."""
    return [source.split("@")[0] for source in job.payload.get("sources", ())]


def no_job(id: str) -> NotFound:
    """The error for a job that is not there, has ended, or may not be seen."""
    return NotFound(f"no open job {id}; see `memos jobs`")


KEPT_PIPELINES = 1000  # of a user, the latest


class UndoTable(Table):
    def put(self, id: str, user_id: str, calls: Sequence[Call]) -> None:
        """Within a transaction."""
        self._db.write(
            "INSERT INTO pipelines (id, user_id, at, undo) VALUES (?, ?, ?, ?)",
            *(id, user_id, self._db.stamp(), _kept(calls)),
        )
        self._db.write(
            """DELETE FROM pipelines WHERE user_id = ? AND n <=
               (SELECT n FROM pipelines WHERE user_id = ? ORDER BY n DESC LIMIT 1 OFFSET ?)""",
            *(user_id, user_id, KEPT_PIPELINES),
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
