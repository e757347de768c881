"""Jobs that outlive a request, written down before they begin; must not know how any is done.

queued -> running -> done, undone            what nobody waits for; its process gone, it is queued again
          running -> interrupted -> running  what can be taken up where it was
          running -> cancelled -> undone

A running job is lent to one holder, until its lease ends by the database's clock. Who renews it in time keeps it. Who
comes back later is refused in the very transaction that would publish what was made.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from typing import Any, Literal, NamedTuple

from memos.config import JobsConfig
from memos.cube import new_id
from memos.errors import Cancelled, NotFound, VaultError
from memos.infrastructure.vault.store.transactions import IN, Store, Table, moment
from memos.ops import Call

Ending = Literal["done", "undone", "interrupted"]
Open = Literal["queued", "running", "interrupted"]
OPEN: tuple[Open, ...] = ("queued", "running", "interrupted")
DIED = "its process died"  # how a job has ended, or why it waits again
_RENEWALS = 3  # of a lease, within its time


JobPayload = dict[str, Any]  # JSON


class Job(NamedTuple):
    """Ids in the payload, never text: a job outlives a deletion. Its `sources` are "id@version"."""

    id: str
    kind: str
    payload: JobPayload
    started: datetime
    note: str = ""  # how far it is, or how it ended
    state: str = "running"
    holder: str = ""  # to whom it is lent: another each time that it is begun
    tries: int = 0  # how often it was begun, where nobody waits for it


class JobList:
    def __init__(
        self,
        db: Store,
        transaction: Callable[[], AbstractContextManager[None]],
        resumable: Callable[[str], bool],
        config: JobsConfig,
    ) -> None:
        """transaction: of the vault, after which the work of jobs that have ended is removed. resumable: whether a job
        has left something here that it can be taken up from."""
        self._db, self._transaction, self._resumable, self._config = db, transaction, resumable, config
        self.ended = False  # one did, so that its work can go

    def start(self, kind: str, payload: JobPayload) -> Job:
        """Begin what somebody waits for."""
        with self._db.transaction():
            return self._begin(self._new(kind, payload, tries=None, priority=0))

    def queue(self, kind: str, payload: JobPayload, priority: int = 0) -> str:
        """Write down work for whoever has time; its id, or that of the same work where that is open already. priority:
        the highest is begun first."""
        with self._db.transaction():
            for job in self.open(kind):
                if job.payload.get("sources") == payload["sources"]:
                    return job.id
            return self._new(kind, payload, tries=0, priority=priority)

    def take(self, passed: Collection[str] = (), kind: str | None = None) -> Job | None:
        """Begin the most urgent job that nobody waits for, of those the oldest, of this kind or of every kind, and that
        is not among those passed over; None where none is left. Of several who ask at once, each gets another."""
        with self._db.transaction():
            self._end_lapsed(self._db.seconds())
            rows = self._db.rows(
                f"SELECT id FROM jobs WHERE tries IS NOT NULL AND state IN ('queued', 'interrupted') "
                f"AND id NOT {IN} AND kind = ifnull(?, kind) ORDER BY priority DESC, started, id LIMIT 1",
                *(json.dumps(list(passed)), kind),
            )
            return self._begin(rows[0][0]) if rows else None

    def resume(self, kind: str, payload: JobPayload) -> Job | None:
        """Begin an interrupted job of this kind and payload again, if there is one."""
        with self._db.transaction():
            self._end_lapsed(self._db.seconds())
            same = [job.id for job in self.all("interrupted", kind=kind) if job.payload == payload]
            return self._begin(same[0]) if same else None

    @contextmanager
    def renewed(self, job: Job) -> Iterator[None]:
        """Keep the lease of a running job for as long as the block runs."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self._config.lease_s / _RENEWALS):
                with suppress(VaultError), self._db.transaction(lasting=False):  # the next time may be early enough
                    sql = "UPDATE jobs SET until = ? WHERE id = ? AND holder = ?"
                    self._db.write(sql, self._lease_end(), job.id, job.holder)

        thread = threading.Thread(target=renew, name="memos-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def describe(self, job: Job, payload: JobPayload) -> None:
        """Say more closely what a running job does. Raises Cancelled."""
        with self._db.transaction():
            self.require(job)
            self._db.write("UPDATE jobs SET payload = ? WHERE id = ?", json.dumps(payload), job.id)

    def require(self, job: Job) -> None:
        """Within the transaction that keeps what a job has made. Raises Cancelled where the job is its holder's no
        more, so that nothing of it is kept."""
        sql = "SELECT 1 FROM jobs WHERE id = ? AND holder = ? AND state = 'running'"
        if not self._db.rows(sql, job.id, job.holder):
            raise _lost(job)

    def end(self, job: Job, state: Ending, note: str = "") -> None:
        """An interrupted job can be taken up again. Raises Cancelled, as `require` does."""
        with self._transaction():
            if not self._end(state, note, job.id, job.holder):
                raise _lost(job)

    def try_again(self, job: Job, note: str) -> None:
        """Queue a job again that failed for no reason of its own; begun as often as may be, it has failed for good.
        Raises Cancelled."""
        with self._transaction():
            self.require(job)
            again = "UPDATE jobs SET state = 'queued', note = ? WHERE id = ? AND tries < ?"
            if not self._db.write(again, note, job.id, self._config.tries):
                self._end("undone", note, job.id, job.holder)

    def end_cut_off(self) -> None:
        """To be called while nobody else has the vault open: then a running job is one whose process died."""
        with self._db.transaction():
            self._end_lapsed(math.inf)

    def _end_lapsed(self, now: float) -> None:
        """Within a transaction: take running jobs from those who have let their lease end."""
        sql = """SELECT id, state, holder, tries FROM jobs WHERE state IN ('running', 'cancelled')
                 AND (until IS NULL OR until < ?)"""
        for id, state, holder, tries in self._db.rows(sql, now):
            again = state == "running" and (tries is None or tries < self._config.tries)
            if again and self._resumable(id):
                self._end("interrupted", DIED, id, holder)
            elif again and tries is not None:
                self._db.write("UPDATE jobs SET state = 'queued', note = ? WHERE id = ?", DIED, id)
            else:
                self._end("undone", DIED if state == "running" else "cancelled", id, holder)

    def _new(self, kind: str, payload: JobPayload, tries: int | None, priority: int) -> str:
        id = new_id()
        self._db.write(
            "INSERT INTO jobs (id, kind, payload, state, started, tries, priority) VALUES (?, ?, ?, 'queued', ?, ?, ?)",
            *(id, kind, json.dumps(payload), self._db.stamp(), tries, priority),
        )
        return id

    def _begin(self, id: str) -> Job:
        self._db.write(
            "UPDATE jobs SET state = 'running', ended = NULL, note = '', tries = tries + 1, holder = ?, until = ? "
            "WHERE id = ?",
            *(new_id(), self._lease_end(), id),
        )
        return next(job for job in self.all("running") if job.id == id)

    def _lease_end(self) -> float:
        return self._db.seconds() + self._config.lease_s

    def note(self, job: Job, note: str) -> bool:
        """How far a running job is. False if it was cancelled meanwhile, or is another's."""
        sql = "UPDATE jobs SET note = ? WHERE id = ? AND holder = ? AND state = 'running'"
        with self._db.transaction():
            return bool(self._db.write(sql, note, job.id, job.holder))

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
            stale = [job.id for job in self.all("interrupted", "queued") if gone.intersection(sources_of(job))]
            sql = f"UPDATE jobs SET state = 'undone', note = 'a source has changed' WHERE id {IN}"
            self.ended |= bool(stale) and self._db.write(sql, json.dumps(stale)) > 0

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

    def _end(self, state: str, note: str, id: str, holder: str | None) -> int:
        """One that was cancelled can only be undone."""
        self.ended = True
        sql = f"""UPDATE jobs SET state = ?, ended = ?, note = ? WHERE id = ? AND ifnull(holder, '') = ?
                  AND state IN ('running', '{"cancelled" if state == "undone" else "running"}')"""
        return self._db.write(sql, state, self._db.stamp(), note, id, holder or "")

    def open(self, kind: str) -> list[Job]:
        """Those of a kind that have not ended; oldest first."""
        return self.all(*OPEN, kind=kind)

    def all(self, *states: str, kind: str | None = None) -> list[Job]:
        """Those in one of these states, of one kind or of every kind; oldest first."""
        rows = self._db.rows(
            "SELECT id, kind, payload, started, note, state, ifnull(holder, ''), ifnull(tries, 0) FROM jobs "
            f"WHERE state {IN} AND kind = ifnull(?, kind) ORDER BY started, id",
            *(json.dumps(states), kind),
        )
        return [Job(id, kind, json.loads(text), moment(at), *rest) for id, kind, text, at, *rest in rows]


def sources_of(job: Job) -> list[str]:
    """The ids of the cubes that a job is about."""
    return [source.split("@")[0] for source in job.payload.get("sources", ())]


def _lost(job: Job) -> Cancelled:
    return Cancelled(
        f"job {job.id} was cancelled, has ended, or was not heard of for so long that another process may have it "
        "(vault.jobs.lease_s); nothing of what was made here is kept, see `memos jobs`"
    )


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
