"""The only door to stored cubes: one SQLite file, and a folder of blobs beside it.

Knows how a cube is kept and forgotten, in all its places together. Must not know why a cube is wanted, who wants it,
or which state may follow which.

    vault.db      versions and transitions (append-only), heads, usage, sources, vectors, jobs, audit (database.py)
    blobs/, tmp/  payloads (blob_store.py); swept when nobody else has the vault open
    work/         of jobs that can be taken up again
    lock          held shared by each open vault, so that one knows when it is alone (folder_lock.py)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from memos.cube import Blob, Form, MemCube, Source, State, Usage
from memos.errors import Conflict, CorruptBlob, NotFound, VaultError
from memos.infrastructure.audit_log import AuditLog, AuditRow
from memos.infrastructure.blob_store import BlobStore
from memos.infrastructure.database import IN, Database, now
from memos.infrastructure.folder_lock import FolderLock
from memos.infrastructure.job_list import Ending, Job, JobList
from memos.infrastructure.vector_table import Coarse, VectorRow, Vectors, VectorTable

_CUBE = """SELECT v.json, h.state, u.recalls, u.last FROM heads h JOIN versions v ON v.id = h.id
           LEFT JOIN usage u ON u.id = h.id """
_CURRENT = _CUBE + "WHERE v.version = h.version "
_DERIVED = """WITH RECURSIVE tree (id) AS (
                SELECT derived_id FROM sources WHERE source_id IN (SELECT value FROM json_each(?))
                UNION SELECT s.derived_id FROM sources s JOIN tree ON s.source_id = tree.id)
              SELECT id FROM tree"""
_TRANSITION = "INSERT INTO transitions (id, state, at, why) VALUES (?, ?, ?, ?)"
_SHORTEST_PREFIX = 6  # of an id, in place of the whole


class MemVault:
    """Thread safe: one connection behind one lock. A write that returned outside a transaction is on disk."""

    def __init__(self, path: Path) -> None:
        """Open the vault in the folder `path`, made if absent. Raises VaultError."""
        self.path = path
        self._lock = FolderLock(path)
        try:
            with self._lock.alone() as alone:
                self._db = Database(path / "vault.db")
                self._audit, self._jobs, self._vectors = AuditLog(self._db), JobList(self._db), VectorTable(self._db)
                self._blobs = BlobStore(path, self._referrers)
                if alone:
                    self._jobs.end_cut_off(self._blobs.has_work)
                    self._blobs.sweep()
                    self._clear_work()
                    self._erase()
        except (VaultError, OSError):
            self._lock.close()
            raise

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    def __enter__(self) -> MemVault:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # transactions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several calls land together or not at all; a nested one that raises undoes only its own part.

        Other threads and processes wait to write meanwhile: no model runs in here.
        """
        with self._db.lock:
            outermost = not self._db.in_transaction
            with self._db.transaction():
                yield
            if outermost:
                self._clear_work()
                self._erase()

    # cubes

    def put(self, cube: MemCube) -> None:
        """Keep a new cube, or the next version of one; a next version keeps the state that the cube is in.

        Raises Conflict when the version is not the one after the current, NotFound for a source that does not
        exist, CorruptBlob for a payload that was not stored first.
        """
        with self.transaction():
            [(current,)] = self._db.rows("SELECT ifnull(max(version), 0) FROM versions WHERE id = ?", cube.id)
            if cube.version != current + 1:
                raise Conflict(
                    f"cube {cube.id} is at version {current}, so {cube.version} cannot be next; read it again and retry"
                )
            if cube.blob and not self._blobs.find(cube.blob.sha256):  # what is found here stays until the cube is in
                raise CorruptBlob(
                    f"cube {cube.id} names blob {cube.blob.sha256}, which is not in {self.path}; store() it first"
                )
            at = now()
            content = cube.model_dump_json(exclude={"state", "usage"})
            self._db.write("INSERT INTO versions VALUES (?, ?, ?, ?)", cube.id, cube.version, content, at)
            self._db.write(
                """INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
                   version = excluded.version, form = excluded.form, segment = excluded.segment,
                   user_id = excluded.user_id""",
                *(cube.id, cube.version, cube.state, cube.form, cube.header.segment, cube.namespace.user_id),
            )
            if cube.version == 1:
                self._db.write(_TRANSITION, cube.id, cube.state, at, "created")
            self._db.write("DELETE FROM vectors WHERE id = ?", cube.id)  # they were of the version before
            self._put_sources(cube)
            if cube.version > 1:
                self._jobs.abandon([cube.id])

    def _put_sources(self, cube: MemCube) -> None:
        for source in self._missing_sources(cube):
            raise NotFound(f"{_names_missing(cube, source)}; derive it again from what `memos ls` lists")
        self._db.write("DELETE FROM sources WHERE derived_id = ?", cube.id)
        rows = [(cube.id, source.id, source.version) for source in cube.sources]
        self._db.write_many("INSERT OR IGNORE INTO sources VALUES (?, ?, ?)", rows)  # ignore: one named twice

    def _missing_sources(self, cube: MemCube) -> list[Source]:
        sql = "SELECT 1 FROM versions WHERE id = ? AND version = ?"
        return [source for source in cube.sources if not self._db.rows(sql, source.id, source.version)]

    def get(self, id: str, version: int | None = None) -> MemCube:
        """The current version, or an old one, with the current state and usage. Raises NotFound.

        A prefix of `id` will do where it fits one cube alone.
        """
        known = self._resolve(id)
        rows = self._db.rows(_CUBE + "WHERE h.id = ? AND v.version = ifnull(?, h.version)", known, version)
        if rows:
            return _cube(rows[0])
        raise NotFound(f"cube {known} has no version {version}; see `memos show {known}`")

    def _resolve(self, id: str) -> str:
        if self._db.rows("SELECT 1 FROM heads WHERE id = ?", id):
            return id
        near = self._db.rows("SELECT id FROM heads WHERE substr(id, 1, ?) = ? LIMIT 2", len(id), id)
        if len(near) != 1 or len(id) < _SHORTEST_PREFIX:
            raise absent(id)
        return str(near[0][0])

    def cubes(
        self, *, form: Form | None = None, states: Iterable[State] | None = None, segment: str | None = None
    ) -> list[MemCube]:
        """Current cubes in canonical order; None leaves a filter out."""
        sql, values = _CURRENT, list[str]()
        if form is not None:
            sql, values = sql + "AND h.form = ? ", [*values, form]
        if segment is not None:
            sql, values = sql + "AND h.segment = ? ", [*values, segment]
        if states is not None:
            sql, values = sql + f"AND h.state {IN} ", [*values, json.dumps(list(states))]
        return _in_order(self._db.rows(sql, *values))

    def at(self, ids: Iterable[str]) -> list[MemCube]:
        """The current versions of these, in their order; one that is not there is left out."""
        wanted = list(ids)
        found = {cube.id: cube for cube in map(_cube, self._db.rows(_CURRENT + f"AND h.id {IN}", json.dumps(wanted)))}
        return [found[id] for id in wanted if id in found]

    def saying(self, texts: Iterable[str], user_id: str) -> list[MemCube]:
        """The cubes of a user, of every state, whose current text is one of these, in canonical order."""
        wanted = set(texts)
        sql = _CURRENT + f"AND substr(json_extract(v.json, '$.payload.text'), 1, 64) {IN} AND h.user_id = ?"
        return [
            c
            for c in _in_order(self._db.rows(sql, json.dumps([text[:64] for text in wanted]), user_id))
            if c.text in wanted
        ]

    def last_change(self) -> int:
        """Grows with every change of a cube's version or state, in this process or another."""
        return int(self._db.rows("SELECT n FROM clock")[0][0])

    def changed_since(self, n: int, states: Iterable[State]) -> tuple[list[MemCube], list[str]]:
        """What changed after `n`: plaintext cubes that are in one of `states`, and the ids of others that are there."""
        known = "SELECT id FROM changes WHERE n > ?"
        sql = _CURRENT + f"AND h.form = ? AND h.state {IN} AND h.id IN ({known})"
        cubes = [_cube(row) for row in self._db.rows(sql, Form.PLAINTEXT, json.dumps(list(states)), n)]
        kept = {cube.id for cube in cubes}
        return cubes, [id for (id,) in self._db.rows(known, n) if id not in kept]

    def deleted_since(self, n: int, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that were deleted after `n`; nothing on disk remembers their names."""
        if int(self._db.rows("SELECT deleted FROM clock")[0][0]) <= n:
            return []
        there = {id for (id,) in self._db.rows("SELECT id FROM heads")}
        return [id for id in ids if id not in there]

    def versions(self, id: str) -> list[MemCube]:
        """All versions, oldest first."""
        return [cube for _, cube in self.written(id)]

    def written(self, id: str) -> list[tuple[datetime, MemCube]]:
        """All versions with the time each was kept, oldest first."""
        sql = _CUBE.replace("SELECT ", "SELECT v.at, ", 1) + "WHERE h.id = ? ORDER BY v.version"
        return [(datetime.fromisoformat(at), _cube(row)) for at, *row in self._db.rows(sql, self._resolve(id))]

    def transitions(self, id: str) -> list[tuple[datetime, State, str]]:
        """The states it has been in and why, oldest first."""
        rows = self._db.rows("SELECT at, state, why FROM transitions WHERE id = ? ORDER BY n", self._resolve(id))
        return [(datetime.fromisoformat(at), State(state), why) for at, state, why in rows]

    def set_state(self, id: str, state: State, why: str) -> None:
        """Only MemLifecycle calls this: it knows which moves there are. `why` never quotes a cube's content."""
        with self.transaction():
            known = self._resolve(id)
            self._db.write("UPDATE heads SET state = ? WHERE id = ?", state, known)
            self._db.write(_TRANSITION, known, state, now(), why)

    def derived(self, *ids: str) -> list[MemCube]:
        """Current cubes derived from any of `ids`, directly or through other cubes, in canonical order."""
        return _in_order(self._db.rows(_CURRENT + f"AND h.id IN ({_DERIVED})", json.dumps(ids)))

    def held_bytes(self, form: Form) -> int:
        """Bytes of the payloads of this form that are in use."""
        sql = """SELECT ifnull(sum(json_extract(v.json, '$.payload.bytes')), 0) FROM versions v
                 JOIN heads h ON h.id = v.id AND h.version = v.version WHERE h.form = ? AND h.state = ?"""
        [(held,)] = self._db.rows(sql, form, State.ACTIVATED)
        return int(held)

    def in_use(self, blobs: Iterable[str]) -> set[str]:
        """Those of the blobs, by sha256, that belong to a cube in use."""
        sql = f"""SELECT json_extract(v.json, '$.payload.sha256') AS sha256 FROM versions v
                  JOIN heads h ON h.id = v.id AND h.version = v.version
                  WHERE sha256 {IN} AND h.state = ?"""
        return {sha256 for (sha256,) in self._db.rows(sql, json.dumps(list(blobs)), State.ACTIVATED)}

    def record_use(self, ids: Iterable[str], when: datetime) -> None:
        """Count one recall of each. A cube deleted while its answer was being decoded is passed over."""
        with self.transaction():
            self._db.write(
                f"""INSERT INTO usage SELECT id, 1, ? FROM heads WHERE id {IN}
                    ON CONFLICT (id) DO UPDATE SET recalls = recalls + 1, last = excluded.last""",
                *(when.isoformat(), json.dumps(list(ids))),
            )

    def delete(self, ids: Iterable[str]) -> None:
        """Remove every trace, in the file's free pages and in blobs too. Raises Conflict if a derived cube would stay.

        The bytes go right after the commit; where that is cut short, a later commit or opening finishes it.
        """
        with self.transaction():
            known = [self._resolve(id) for id in ids]
            left = [cube.id for cube in self.derived(*known) if cube.id not in known]
            if left:
                raise Conflict(f"{', '.join(left)} would outlive its sources; delete them together")
            self._jobs.abandon(known)
            self._vectors.forget_around(known)
            _parsed.cache_clear()
            names = json.dumps(known)
            self._db.write(
                "INSERT INTO erasures (sha256) "
                f"SELECT DISTINCT json_extract(json, '$.payload.sha256') FROM versions WHERE id {IN}",
                names,
            )
            self._db.write(f"DELETE FROM heads WHERE id {IN}", names)  # and, by cascade, all but its versions
            self._db.write(f"DELETE FROM versions WHERE id {IN}", names)

    def _erase(self) -> None:
        """Pay the debt of `delete`: the blobs that nobody refers to, and what is left of the text in vault.db."""
        debt = self._db.rows("SELECT n, sha256 FROM erasures")
        if not debt:
            return
        try:
            with self._db.transaction():  # no put can come between the question who refers to it and the removal
                for sha256 in {sha256 for _, sha256 in debt if sha256 is not None}:
                    self._blobs.drop(sha256)
            if self._db.scrub(text=any(sha256 is None for _, sha256 in debt)):
                with self._db.transaction():
                    self._db.write_many("DELETE FROM erasures WHERE n = ?", [(n,) for n, _ in debt])
        except VaultError:  # another process is writing: a later commit pays the debt
            return

    # vectors

    def put_vectors(self, embedder: str, rows: Iterable[VectorRow]) -> None:
        """Keep what an embedder read; a row of a version that is no longer current, or made of a cube that was deleted
        since, is passed over. Raises InputError for another width than the embedder's others."""
        self._vectors.put(embedder, rows)

    def vectors(self, embedder: str, ids: Iterable[str]) -> dict[str, tuple[int, str, Vectors]]:
        """(version, around, vector) of each of `ids` that has one."""
        return self._vectors.of(embedder, ids)

    def token_vectors(self, embedder: str, ids: Iterable[str]) -> dict[str, Coarse]:
        """[tokens, width] int8 of each of `ids` that has them."""
        return self._vectors.tokens(embedder, ids)

    # blobs

    def staging(self) -> AbstractContextManager[Path]:
        """A path under tmp/ where nothing is yet, for a file or a folder; what is left there afterwards is removed.

        Keep the block open until the cube is put: meanwhile `sweep` leaves its blob alone.
        """
        return self._blobs.staging()

    def store(self, path: Path) -> tuple[str, int]:
        """Move a staged file or folder into blobs/; its sha256 and bytes. A damaged blob of that name is replaced."""
        sha256, size = self._blobs.seal(path)
        with self.transaction():  # as removing a blob is, in this process or another
            self._blobs.place(path, sha256)
        return sha256, size

    def blob_path(self, blob: Blob, verified: bool = True) -> Path:
        """Where the payload lies, after its digest was verified. Raises CorruptBlob.

        verified: False for a reader that verifies a checksum of its own; then only a missing file is told.
        """
        return self._blobs.verified(blob.sha256) if verified else self._blobs.there(blob.sha256)

    def discard(self, sha256: str) -> None:
        """Remove a stored blob that no cube came to refer to, as when its publishing was refused."""
        with self.transaction():  # as `put` does: a blob another process is about to name is not taken from under it
            self._blobs.drop(sha256)

    def _referrers(self, sha256: str) -> list[str]:
        sql = "SELECT DISTINCT id FROM versions WHERE json_extract(json, '$.payload.sha256') = ? ORDER BY id"
        return [id for (id,) in self._db.rows(sql, sha256)]

    # jobs

    def start_job(self, kind: str, payload: dict[str, Any]) -> str:
        """Write down work before it begins. Ids in the payload, never text: a job outlives a deletion."""
        return self._jobs.start(kind, payload)

    def resume_job(self, kind: str, payload: dict[str, Any]) -> str | None:
        """Take up the interrupted job of this kind and payload, if there is one; its id."""
        return self._jobs.resume(kind, payload)

    def work_of(self, job: str) -> Path:
        """A folder for what a job can be taken up from; it goes when the job ends or a source of it changes."""
        return self._blobs.work(job)

    def note_job(self, id: str, note: str) -> bool:
        """How far a running job is. False if it was cancelled meanwhile."""
        return self._jobs.note(id, note)

    def end_job(self, id: str, state: Ending, note: str = "") -> None:
        """Raises NotFound."""
        with self.transaction():
            self._jobs.end(id, state, note)

    def cancel_job(self, id: str) -> None:
        """Raises NotFound."""
        with self.transaction():
            self._jobs.cancel(id)

    def jobs(self, state: Literal["running", "interrupted", "done", "undone"], kind: str | None = None) -> list[Job]:
        """Oldest first. Running ones of a process that died are ended by the next opening that finds itself alone."""
        return self._jobs.all(state, kind)

    def _clear_work(self) -> None:
        """Of jobs that have ended: it may be half an adapter of a text that was deleted."""
        if self._blobs.has_work():
            going_on = ("running", "cancelled", "interrupted")
            self._blobs.clear_work(job.id for state in going_on for job in self._jobs.all(state))

    # cards

    def keep_card(self, host: str, card: dict[str, Any]) -> None:
        """Keep what was measured on the host with this digest, in place of what was."""
        with self.transaction():
            self._db.write("INSERT OR REPLACE INTO cards VALUES (?, ?, ?)", host, json.dumps(card), now())

    def card(self, host: str) -> dict[str, Any] | None:
        """What was measured on the host with this digest; None if nothing was."""
        rows = self._db.rows("SELECT json FROM cards WHERE host = ?", host)
        return dict(json.loads(rows[0][0])) if rows else None

    # audit

    def audit(self, caller: str, action: str, target: str, allowed: bool, why: str) -> None:
        """Write down a decision, on disk when this returns. Refused inside a transaction, which could undo it."""
        self._audit.append(caller, action, target, allowed, why)

    def audit_rows(self, limit: int | None = None) -> list[AuditRow]:
        """The last `limit` decisions, or all; oldest first."""
        return self._audit.rows(limit)

    def verify_audit(self) -> list[str]:
        """Rows that were changed, removed or put in."""
        return self._audit.verify()

    # upkeep

    def sweep(self) -> list[str]:
        """Delete what a crash left in tmp/ and blobs nobody refers to; the names removed.

        Removes nothing while another process has the vault open or a payload is being staged.
        """
        with self._db.lock, self._lock.alone() as alone:
            return self._blobs.sweep() if alone else []

    def check(self) -> list[str]:
        """What is wrong with the stored data, in words; reads every blob."""
        if broken := self._db.damage():  # what follows would stumble over it
            return [*broken, "vault.db: bring back a copy of the vault folder"]
        blobs = self._db.rows(
            "SELECT DISTINCT json_extract(json, '$.payload.sha256') AS b FROM versions WHERE b IS NOT NULL"
        )
        [(unpaid,)] = self._db.rows("SELECT count(*) FROM erasures")
        return [
            *self._db.dangling(),
            *(_names_missing(cube, source) for cube in self.cubes() for source in self._missing_sources(cube)),
            *(problem for (sha256,) in blobs if (problem := self._blobs.problem(sha256))),
            *self.verify_audit(),
            *(["deleted cubes have left traces; close other processes and open the vault again"] if unpaid else []),
        ]


def absent(id: str) -> NotFound:
    """The error for an id that fits no cube or several; governance raises it for a cube that may not be seen.

    It names no near ids: they could be those of another user.
    """
    return NotFound(f"no cube {id}; give the whole id as `memos ls` lists it")


def _names_missing(cube: MemCube, source: Source) -> str:
    return f"cube {cube.id} is derived from {source.id} version {source.version}, which is not there"


def _cube(row: Iterable[Any]) -> MemCube:
    content, state, recalls, last = row
    cube = _parsed(content)
    if recalls:
        usage = Usage(recalls=recalls, last_recalled=datetime.fromisoformat(last))
        return cube.model_copy(update={"state": State(state), "usage": usage})
    return cube if state == cube.state else cube.model_copy(update={"state": State(state)})


@lru_cache(maxsize=1 << 13)  # the cubes of busy topic groups are read with every request
def _parsed(content: str) -> MemCube:
    return MemCube.model_validate_json(content)


def _in_order(rows: list[tuple[Any, ...]]) -> list[MemCube]:
    return sorted(map(_cube, rows), key=lambda cube: cube.order)
