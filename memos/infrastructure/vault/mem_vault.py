"""The only door to stored cubes: a SQLite file with a folder of blobs, or a database server with local copies.

Knows how a cube is kept and forgotten, in all its places together. Must not know why a cube is wanted, who wants it,
or which state may follow which.

    vault.db      versions, transitions, uses (append-only), heads, usage, sources, jobs, audit (database.py)
    vectors.db    of texts and of their tokens (vector_table.py)
    blobs/, tmp/  payloads (blob_store.py); swept when nobody else has the vault open
    index/        what an index was when it was last kept (index_store.py)
    work/         of jobs that can be taken up again
    signing.key   that signs the audit log and packs, and signing.key.head, the last checkpoint (signing.py)
    key.json      of an encrypted vault: its key, wrapped (vault_key.py)
    sums.json     what all files are, while the vault is closed (file_sums.py)
    vault.db-next, vault.db-turn  whose turn it is to write (writer_lock.py)
    lock          held shared by each open vault, so that one knows when it is alone (folder_lock.py)
    server.json   on which server the rows and payloads are instead (vault_server.py, postgres.py, server_shelf.py)
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt
from pydantic import BaseModel, TypeAdapter, ValidationError

from memos.config import GovernanceConfig, QuotaConfig
from memos.cube import Blob, Fact, Form, MemCube, Namespace, Source, State, Text, Turn, Usage, ids_after
from memos.errors import Conflict, CorruptBlob, NotFound, VaultError
from memos.infrastructure.guard.guard import Guard
from memos.infrastructure.vault.audit.audit_log import AuditLog
from memos.infrastructure.vault.audit.records import AuditRow
from memos.infrastructure.vault.blobs.blob_store import BlobStore
from memos.infrastructure.vault.blobs.index_store import Arrays, IndexStore
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.care.residue import Searched, search
from memos.infrastructure.vault.care.stats import VaultStats
from memos.infrastructure.vault.store.clock import moment, odd_row
from memos.infrastructure.vault.store.extension_tables import ExtensionTables
from memos.infrastructure.vault.store.folder_lock import FolderLock
from memos.infrastructure.vault.store.rows import HEAD, checksum, facts, head, kept, sources, words
from memos.infrastructure.vault.store.store import IN, LATEST
from memos.infrastructure.vault.stores import Place, store_of
from memos.infrastructure.vault.tables.credential_table import Credential, CredentialTable
from memos.infrastructure.vault.tables.forgotten_ledger import Forgotten, ForgottenLedger, named
from memos.infrastructure.vault.tables.grant_table import GrantTable, RightsState
from memos.infrastructure.vault.tables.hold_table import HoldTable
from memos.infrastructure.vault.tables.job_list import OPEN, Ending, Job, JobList
from memos.infrastructure.vault.tables.quarantine_table import QuarantineTable
from memos.infrastructure.vault.tables.snapshot_table import Snapshot, SnapshotTable
from memos.infrastructure.vault.tables.undo_table import UndoTable
from memos.infrastructure.vault.tables.vector_table import Coarse, VectorRow, Vectors, VectorTable
from memos.rights import Grant, Group, Relation, Subject

log = logging.getLogger("memos")
_CUBE = """SELECT v.json, h.state, h.repeats, u.recalls, u.last, u.utility FROM heads h JOIN versions v ON v.id = h.id
           LEFT JOIN usage u ON u.id = h.id """
_CURRENT = _CUBE + "WHERE v.version = h.version "
_OF_ID = _CURRENT + "AND h.id = ?"
_OF_VERSION = _CUBE + "WHERE h.id = ? AND v.version = ?"
_STATE = "CASE WHEN h.expires <= ? THEN 'expired' ELSE h.state END"  # as `_cube` tells it
_DERIVED = """WITH RECURSIVE tree (id) AS (
                SELECT derived_id FROM sources WHERE source_id IN (SELECT value FROM json_each(?))
                UNION SELECT s.derived_id FROM sources s JOIN tree ON s.source_id = tree.id)
              SELECT id FROM tree"""
_APART = {"state", "usage"}  # of a cube, from its versions
_PUT_HEAD = f"INSERT INTO heads (id, {', '.join(HEAD)}, state, since) VALUES (?, {', '.join('?' * len(HEAD))}, ?, ?)"
_NEXT_HEAD = f""" ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in HEAD)},
                since = excluded.since"""
_PUT_TRANSITION = "INSERT INTO transitions (id, state, at, why, digest) VALUES (?, ?, ?, ?, ?)"
_AT_ONCE = 1 << 25  # bytes of vault.db that are vacuumed while somebody waits: some tenths of a second
_SOON_S, _PATIENCE_S = 1.0, 30.0  # else: after a deletion; for so long a check waits
_NAMES = (  # where a user stands beside cubes and snapshots
    *(("credentials", "user_id"), ("grants", "to_user"), ("grants", "over_user"), ("grants", "by")),
    *(("group_members", "owner"), ("group_members", "user_id")),
    *(("uses", "user_id"), ("newcomers", "user_id"), ("pipelines", "user_id")),
)
_FORGOTTEN = "one that was forgotten"  # in place of a name
_PAUSE_S = 0.05  # between tries to leave nothing of what was deleted
_SHORTEST_PREFIX = 6  # of an id, in place of the whole


RETAIN = "retain:"  # before the name of a class of retention, in a tag
ACCESSES = 12_000  # the latest uses, of which prediction learns again when a kernel starts: some tenths of a second


@dataclass(frozen=True)
class News:
    """What has happened in a vault: its last change and the last that was a deletion, and what came since a time."""

    change: int
    deletion: int
    at: datetime  # now
    used: bool  # a memory was used since
    lapsed: bool  # a memory has expired since


class MemVault:
    """Thread safe: reads wait for nobody, writes for their turn. A write that returned outside a transaction is on
    disk."""

    def __init__(
        self,
        path: Path,
        quota: QuotaConfig = QuotaConfig(),
        governance: GovernanceConfig = GovernanceConfig(),
        key: str | None = None,
        scratch: Path | None = None,
        url: str | None = None,
    ) -> None:
        """Open the vault in the folder `path`, made if absent.

        key: where the key of an encrypted one is, see vault_key.py; None: where it was, or no encryption.
        scratch: for plaintext of an encrypted one, on a file system in memory; None: the system's. url: of the server
        that its rows and payloads are on; None: where they were, or in the folder. Raises VaultError, ConfigError.
        """
        self.path, self.guard = path, Guard(governance)
        self._lock, self._vacuumed = FolderLock(path), 0  # the last deletion of a text that left nothing in vault.db
        self._erasing: threading.Thread | None = None
        self._of_erasing, self._closing = threading.Lock(), threading.Event()
        self._place = Place(path, key, scratch, url)
        try:
            with ExitStack() as opening:
                alone = opening.enter_context(self._lock.alone())
                self._store = store_of(self._place)
                self._db, self._files, self.sealing, self._shelf = self._store.open(self._place, alone)
                alone = opening.enter_context(self._db.alone()) and alone
                self._sums = file_sums.take(path)
                self.audit_log = AuditLog(self._db, path, governance.audit)
                self._jobs, self._vectors = JobList(self._db), VectorTable(self._db)
                self._snapshots = SnapshotTable(self._db, self.guard.as_written)
                self.extensions = ExtensionTables(self._db)
                self._grants, self._credentials = GrantTable(self._db), CredentialTable(self._db)
                self.quarantine = QuarantineTable(self._db)
                self.pipelines = UndoTable(self._db)
                self.holds = HoldTable(self._db, self.guard.as_written)
                self._ledger = ForgottenLedger(self._db)
                self._stats = VaultStats(path, self._db, quota)
                ids_after(self.now())
                self._blobs = BlobStore(path, self._files, self._referrers, self._shelf)
                self._index = IndexStore(path, self._files.format, self._db, self._shelf)
                self._deleted = -1  # the last deletion that copies of payloads are free of
                self._drop_copies()
                if alone:
                    self._jobs.end_cut_off(self._blobs.has_work)
                    self._blobs.sweep()
                    for name in self._index.sweep(alone=True):
                        log.warning("%s is not named by the vault as it is now, and was removed", path / name)
                    self._clear_work()
                    self._pay(self._owes())
                self.audit_log.sign_what_is_older()
        except BaseException:
            if "_db" in vars(self):
                self._db.close()
            self._lock.close()
            raise

    def close(self) -> None:
        """What is not signed yet of the audit log is signed; the last to close sums up what the files are."""
        if self._lock.closed:
            return
        self._closing.set()
        if erasing := self._erasing:
            erasing.join()
            self._erase()
        with self._lock.alone(leaving=True) as alone:
            with self._db.alone(leaving=True):
                self.audit_log.sign()
            self._db.close()
            self._files.close(alone)
            if alone:
                file_sums.keep(self.path, self._sums)

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
        outermost = not self._db.in_transaction
        with self._db.transaction():
            yield
            owing = outermost and self._owes()  # asked in here, where it costs least
        if outermost:
            self._clear_work()
            self._pay(owing)

    def now(self) -> datetime:
        """The time; never before one that was written down here, even where the machine's clock went back."""
        return self._db.now()

    # cubes

    def put(self, *cubes: MemCube) -> None:
        """Keep new cubes, or the next versions of some, all together or none; several at once take about half the time
        of one after the other. A next version keeps the state that the cube is in.

        What is never to be stored (governance.redaction) is taken out, and their readers become grants, and are not
        kept in them. Raises Conflict when a version is not the one after the current, NotFound for a source that does
        not exist, CorruptBlob for a payload that was not stored first, QuotaExceeded.
        """
        cubes = tuple(map(self.guard.as_kept, cubes))
        with nullcontext() if self._db.in_transaction else self.transaction():
            self._require_next(cubes)
            new = {(cube.id, cube.version) for cube in cubes}
            for cube in cubes:
                if cube.blob and not self._blobs.find(cube.blob.sha256):  # what is found stays until the cube is in
                    raise CorruptBlob(
                        f"cube {cube.id} names blob {cube.blob.sha256}, which is not in {self.path}; store() it first"
                    )
                for source in self._missing_sources(cube) if cube.sources else ():
                    if (source.id, source.version) not in new:
                        raise NotFound(f"{_names_missing(cube, source)}; derive it again from what `memos ls` lists")
            at = self._db.stamp()
            contents = [(c.id, c.version, _unshared(c).model_dump_json(exclude=_APART), at) for c in cubes]
            new_of = [cube.namespace.user_id for cube in cubes if cube.version == 1]
            self._stats.require_room(sum(len(content) for _, _, content, _ in contents), 0, new_of)
            with self._db.indivisible():
                if any(c.version > 1 and _belongs(_unshared(c)) != _belongs(self.get(c.id)) for c in cubes):
                    self._grants.moved()
                self._write(cubes, contents, at)
                for cube in cubes:
                    for reader in cube.rights.readers:
                        given = Grant(on=cube.id, to=Namespace(user_id=reader), relation="reader")
                        self._grants.put(given, cube.rights.owner)

    def _require_next(self, cubes: Sequence[MemCube]) -> None:
        ids = [cube.id for cube in cubes]
        which, names = ("= ?", ids[0]) if len(ids) == 1 else (IN, json.dumps(ids))
        current = dict(self._db.rows(f"SELECT id, version FROM heads WHERE id {which}", names))
        for cube in cubes:
            was = current.get(cube.id, 0)
            if cube.version != was + 1:
                raise Conflict(
                    f"cube {cube.id} is at version {was}, so {cube.version} cannot be next; read it again and retry"
                )
        if len(set(ids)) < len(ids):
            raise Conflict("a cube is named twice; put one version after the other")

    def _write(self, cubes: Sequence[MemCube], contents: Iterable[tuple[str, int, str, str]], at: str) -> None:
        self._db.write_many(
            "INSERT INTO versions (id, version, json, at, digest) VALUES (?, ?, ?, ?, ?)",
            [(*row, checksum(*row)) for row in contents],
        )
        if first := [cube for cube in cubes if cube.version == 1]:
            self._db.write_many(_PUT_HEAD, [(cube.id, *head(cube), cube.state.value, at) for cube in first])
            moves = [(cube.id, cube.state.value, at, "created") for cube in first]
            self._db.write_many(_PUT_TRANSITION, [(*row, checksum(*row)) for row in moves])
        if later := [cube for cube in cubes if cube.version > 1]:
            self._db.write_many(_PUT_HEAD + _NEXT_HEAD, [(c.id, *head(c), c.state.value, at) for c in later])
            self._jobs.abandon([cube.id for cube in later])
            for what in ("vectors WHERE id", "sources WHERE derived_id", "facts WHERE id"):  # of the version before
                self._db.write_many(f"DELETE FROM {what} = ?", [(cube.id,) for cube in later])
        if named := [row for cube in cubes for row in sources(cube)]:
            self._db.write_many("INSERT INTO sources VALUES (?, ?, ?)", named)
        if stated := [row for cube in cubes for row in facts(cube)]:
            self._db.write_many("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", stated)

    def _put_transition(self, *row: str) -> None:
        self._db.write(_PUT_TRANSITION, *row, checksum(*row))

    def _missing_sources(self, cube: MemCube) -> list[Source]:
        sql = "SELECT 1 FROM versions WHERE id = ? AND version = ?"
        return [source for source in cube.sources if not self._db.rows(sql, source.id, source.version)]

    def get(self, id: str, version: int | None = None) -> MemCube:
        """The current version, or an old one, with the current state and usage. Raises NotFound.

        A prefix of `id` will do where it fits one cube alone.
        """
        rows = self._of_id(id, version)
        if not rows:
            known = self._resolve(id)
            rows = self._of_id(known, version)
            if not rows:
                raise NotFound(f"cube {known} has no version {version}; see `memos show {known}`")
        return self._cube(rows[0])

    def _of_id(self, id: str, version: int | None) -> list[tuple[Any, ...]]:
        if version is None:
            return self._db.rows(_OF_ID, id)
        return self._db.rows(_OF_VERSION, id, version)

    def named(self, id: str) -> list[MemCube]:
        """The current cubes that an id, or a prefix of one, may mean; in canonical order."""
        exact = self.at([id])
        if exact or len(id) < _SHORTEST_PREFIX:
            return exact
        return self._in_order(self._db.rows(_CURRENT + "AND substr(h.id, 1, ?) = ?", len(id), id))

    def made(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids whose cubes are made of others."""
        sql = f"SELECT DISTINCT derived_id FROM sources WHERE derived_id {IN}"
        return {id for (id,) in self._db.rows(sql, json.dumps(list(ids)))}

    def _cube(self, row: Iterable[Any]) -> MemCube:
        """One whose time to expire has come is expired, whatever state is written down."""
        content, written, repeats, recalls, last, utility = row
        cube, state = _parsed(content), _state(written)
        if cube.header.expires is not None and cube.header.expires <= self.now():
            state = State.EXPIRED
        if recalls or repeats or utility:
            return cube.model_copy(update={"state": state, "usage": _usage(recalls, last, repeats, utility)})
        return cube if state == cube.state else cube.model_copy(update={"state": state})

    def _in_order(self, rows: list[tuple[Any, ...]]) -> list[MemCube]:
        return sorted(map(self._cube, rows), key=lambda cube: cube.order)

    def _at(self) -> str:
        return self.now().isoformat()

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
            sql, values = sql + f"AND {_STATE} {IN} ", [*values, self._at(), json.dumps(list(states))]
        return self._in_order(self._db.rows(sql, *values))

    def at(self, ids: Iterable[str]) -> list[MemCube]:
        """The current versions of these, in their order; one that is not there is left out."""
        wanted = list(ids)
        found = {c.id: c for c in map(self._cube, self._db.rows(_CURRENT + f"AND h.id {IN}", json.dumps(wanted)))}
        return [found[id] for id in wanted if id in found]

    def saying(self, texts: Iterable[str], user_id: str) -> list[MemCube]:
        """The cubes of a user, of every state, whose current text has the words of one of these, in canonical order."""
        digests = json.dumps([words(text) for text in texts])
        return self._in_order(self._db.rows(_CURRENT + f"AND h.words {IN} AND h.user_id = ?", digests, user_id))

    def tagged(self, tag: str, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The texts of a user in one of these states that have a tag, in canonical order."""
        sql = _CURRENT + f"AND h.tags != '' AND h.words != '' AND h.user_id = ? AND {_STATE} {IN}"
        cubes = self._in_order(self._db.rows(sql, user_id, self._at(), json.dumps(list(states))))
        return [cube for cube in cubes if tag in cube.header.tags]

    def agreeing(self, fact: Fact, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that state a fact's very subject, relation and object."""
        known = "SELECT id FROM facts WHERE user_id = ? AND subject = ? AND relation = ? AND object = ?"
        about = (user_id, fact.subject.casefold(), fact.relation, fact.object.casefold())
        sql = _CURRENT + f"AND h.id IN ({known}) AND {_STATE} {IN}"
        return self._in_order(self._db.rows(sql, *about, self._at(), json.dumps(list(states))))

    def stating(self, fact: Fact, modes: Iterable[str], user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that say anything in one of these modes about the fact's subject
        and relation (of every relation, where it names none), in canonical order. What says the very same is left out,
        unless it says that it has ended, or this does.
        """
        relation = "AND relation IN (?, '')" if fact.relation else ""
        known = f"""SELECT id FROM facts WHERE user_id = ? AND subject = ? {relation} AND mode {IN}
                    AND (object != ? OR mode = 'ended' OR ? = 'ended')"""
        about = (fact.subject.casefold(), *([fact.relation] if fact.relation else []), json.dumps(list(modes)))
        sql = _CURRENT + f"AND h.id IN ({known}) AND {_STATE} {IN}"
        values = (user_id, *about, fact.object.casefold(), fact.mode, self._at(), json.dumps(list(states)))
        return self._in_order(self._db.rows(sql, *values))

    def last_change(self) -> int:
        """Grows with every change of a cube's version or state, in this process or another."""
        return int(self._db.rows("SELECT n FROM clock")[0][0])

    def news(self, use: int, after: datetime) -> News:
        """What an index that has read up to this use, and up to this time, still has to read."""
        sql = f"""SELECT n, deleted, {LATEST}, EXISTS (SELECT 1 FROM uses WHERE n > ?),
                  EXISTS (SELECT 1 FROM heads WHERE expires > ? AND expires <= {LATEST}) FROM clock"""
        now = kept(self._db.now())
        [(change, deleted, at, used, lapsed)] = self._db.rows(sql, now, now, use, kept(after), now, now)
        self._db.heard(at)  # what another process has written down
        return News(int(change), int(deleted), moment(at), bool(used), bool(lapsed))

    def changed_since(self, n: int, states: Iterable[State]) -> tuple[list[MemCube], list[str]]:
        """What changed after `n`: plaintext cubes that are in one of `states`, and the ids of others that are there."""
        known = "SELECT id FROM changes WHERE n > ?"
        sql = _CURRENT + f"AND h.form = ? AND {_STATE} {IN} AND h.id IN ({known})"
        values = Form.PLAINTEXT, self._at(), json.dumps(list(states)), n
        cubes = [self._cube(row) for row in self._db.rows(sql, *values)]
        kept = {cube.id for cube in cubes}
        return cubes, [id for (id,) in self._db.rows(known, n) if id not in kept]

    def deleted(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are not there any more; nothing on disk remembers their names."""
        there = {id for (id,) in self._db.rows("SELECT id FROM heads")}
        return [id for id in ids if id not in there]

    def ids(self, user_id: str) -> list[str]:
        """Of all cubes of a user, in the order of their making."""
        return [id for (id,) in self._db.rows("SELECT id FROM heads WHERE user_id = ? ORDER BY id", user_id)]

    def versions(self, id: str) -> list[MemCube]:
        """All versions, oldest first."""
        return [cube for _, cube in self.written(id)]

    def written(self, id: str) -> list[tuple[datetime, MemCube]]:
        """All versions with the time each was kept, oldest first."""
        sql = _CUBE.replace("SELECT ", "SELECT v.at, ", 1) + "WHERE h.id = ? ORDER BY v.version"
        return [(moment(at), self._cube(row)) for at, *row in self._db.rows(sql, self._resolve(id))]

    def transitions(self, id: str) -> list[tuple[datetime, State, str]]:
        """The states it has been in and why, oldest first."""
        rows = self._db.rows("SELECT at, state, why FROM transitions WHERE id = ? ORDER BY n", self._resolve(id))
        return [(moment(at), _state(state), why) for at, state, why in rows]

    def set_state(self, id: str, state: State, why: str) -> None:
        """Only MemLifecycle calls this: it knows which moves there are. `why` never quotes a cube's content; what is
        never stored (governance.redaction) is taken out of it."""
        with self.transaction():
            known = self._resolve(id)
            at = self._db.stamp()
            self._db.write("UPDATE heads SET state = ?, since = ? WHERE id = ?", state, at, known)
            self._put_transition(known, state, at, self.guard.as_written(why))

    def derived(self, *ids: str) -> list[MemCube]:
        """Current cubes derived from any of `ids`, directly or through other cubes, in canonical order."""
        return self._in_order(self._db.rows(_CURRENT + f"AND h.id IN ({_DERIVED})", json.dumps(ids)))

    def payloads_of(self, ids: Iterable[str]) -> list[MemCube]:
        """The KV and adapters derived from any of `ids`, directly or through other cubes, in canonical order."""
        sql = _CURRENT + f"AND h.form != ? AND h.id IN ({_DERIVED})"
        return self._in_order(self._db.rows(sql, Form.PLAINTEXT, json.dumps(list(ids))))

    def users(self) -> list[str]:
        """Those who have a cube."""
        return [user for (user,) in self._db.rows("SELECT DISTINCT user_id FROM heads ORDER BY user_id")]

    def held(self, form: Form) -> dict[str, tuple[int, int]]:
        """(cubes, bytes of their payloads) of this form that each user has in use."""
        sql = """SELECT h.user_id, count(*),
                 CAST(ifnull(sum(CAST(json_extract(v.json, '$.payload.bytes') AS BIGINT)), 0) AS BIGINT) FROM versions v
                 JOIN heads h ON h.id = v.id AND h.version = v.version WHERE h.form = ? AND h.state = ?
                 GROUP BY h.user_id"""
        return {user: (count, size) for user, count, size in self._db.rows(sql, form, State.ACTIVATED)}

    def count(self, user_id: str, states: Iterable[State]) -> int:
        """The memories of a user in one of these states."""
        sql = f"SELECT count(*) FROM heads h WHERE h.user_id = ? AND h.words != '' AND {_STATE} {IN}"
        return int(self._db.rows(sql, user_id, self._at(), json.dumps(list(states)))[0][0])

    def in_use(self, blobs: Iterable[str]) -> set[str]:
        """Those of the blobs, by sha256, that belong to a cube in use."""
        sha256 = "json_extract(v.json, '$.payload.sha256')"
        sql = f"""SELECT {sha256} FROM versions v JOIN heads h ON h.id = v.id AND h.version = v.version
                  WHERE {sha256} {IN} AND {_STATE} = ?"""
        values = json.dumps(list(blobs)), self._at(), State.ACTIVATED
        return {sha256 for (sha256,) in self._db.rows(sql, *values)}

    # ageing and snapshots

    def lapsed(self, after: datetime, upto: datetime) -> list[str]:
        """The ids of cubes whose time to expire lies after the one and not after the other."""
        sql = "SELECT id FROM heads WHERE expires > ? AND expires <= ?"
        return [id for (id,) in self._db.rows(sql, kept(after), kept(upto))]

    def overdue(self, at: datetime, user_id: str | None = None) -> list[tuple[str, State]]:
        """Cubes whose time to expire has come, with the state that is still written down; of a user, or of all."""
        sql = "SELECT id, state FROM heads WHERE expires <= ? AND state != ? AND user_id = ifnull(?, user_id)"
        return [(id, State(state)) for id, state in self._db.rows(sql, kept(at), State.EXPIRED, user_id)]

    def idle(
        self, states: Iterable[State], before: datetime, kinds: Iterable[str], within: bool, user_id: str | None = None
    ) -> list[str]:
        """Texts in these states that were neither changed, moved nor recalled since `before`, oldest first.

        kinds: of which they are, if `within`; else of which they are not. user_id: of one user; None: of all.
        """
        of_kind = f"json_extract(v.json, '$.header.kind') {'' if within else 'NOT'} {IN}"
        sql = f"""SELECT h.id FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version
                  LEFT JOIN usage u ON u.id = h.id
                  WHERE h.state {IN} AND h.since <= ? AND ifnull(u.last, '') <= ? AND h.form = ?
                  AND h.user_id = ifnull(?, h.user_id) AND {of_kind}
                  ORDER BY h.since"""
        since = kept(before)
        values = json.dumps(list(states)), since, since, Form.PLAINTEXT, user_id, json.dumps(list(kinds))
        return [id for (id,) in self._db.rows(sql, *values)]

    def of_class(self, name: str, before: datetime, user_id: str | None = None) -> list[str]:
        """Texts and turns of a class of retention (NAME of a tag `retain:NAME`, else the kind) that were kept before,
        and have not expired, oldest first. user_id: of one user; None: of all."""
        sql = """SELECT h.id, h.tags, json_extract(v.json, '$.header.kind') FROM heads h
                 JOIN versions v ON v.id = h.id AND v.version = h.version
                 JOIN versions f ON f.id = h.id AND f.version = 1
                 WHERE h.form = ? AND h.state != ? AND f.at <= ? AND h.user_id = ifnull(?, h.user_id) ORDER BY f.at"""
        rows = self._db.rows(sql, Form.PLAINTEXT, State.EXPIRED, kept(before), user_id)
        classes = ((id, [t for t in tags.split("\n") if t.startswith(RETAIN)], kind) for id, tags, kind in rows)
        return [id for id, tags, kind in classes if name == (tags[0].removeprefix(RETAIN) if tags else kind)]

    def owned(self, owner: Namespace) -> list[MemCube]:
        """The current cubes of a namespace that belong to its user, in canonical order."""
        own = [c for c in self._in_order(self._db.rows(_CURRENT + "AND h.user_id = ?", owner.user_id))]
        return [c for c in own if owner.covers(c.namespace) and c.rights.owner == owner.user_id]

    def take_snapshot(self, owner: Namespace, name: str) -> Snapshot:
        """Write down the versions and states of all that `owned` tells. Raises InputError for a name that is taken."""
        with self.transaction():
            return self._snapshots.take(owner, name, self.owned(owner))

    def snapshots(self, owner: Namespace) -> list[Snapshot]:
        """Oldest first."""
        return self._snapshots.all(owner)

    def snapshot(self, owner: Namespace, name: str) -> dict[str, tuple[int, State]]:
        """The version and state that each cube had, by id, without those that were deleted since. Raises NotFound."""
        return self._snapshots.of(owner, name)

    def delete_snapshot(self, owner: Namespace, name: str) -> None:
        """Raises NotFound."""
        with self.transaction():
            self._snapshots.delete(owner, name)

    # use and deletion

    def record_use(self, ids: Iterable[str], when: datetime, user_id: str | None = None) -> None:
        """Count one recall of each, by this user or else by its owner. One that was deleted while its answer was being
        decoded is passed over."""
        names = json.dumps(list(ids))
        with self._db.transaction(lasting=False):
            self._db.write(
                f"""INSERT INTO usage (id, recalls, last) SELECT id, 1, ? FROM heads WHERE id {IN}
                    ON CONFLICT (id) DO UPDATE SET recalls = usage.recalls + 1, last = excluded.last""",
                *(kept(when), names),
            )
            self._db.write(
                """INSERT INTO uses (id, at, user_id) SELECT h.id, ?, ifnull(?, h.user_id) FROM json_each(?) AS named
                   JOIN heads h ON h.id = named.value WHERE h.form = ? GROUP BY h.id ORDER BY min(named.key)""",
                *(kept(when), user_id, names, Form.PLAINTEXT),
            )

    def rate(self, id: str, useful: float, pace: float) -> None:
        """Move the utility of a cube by `pace` of the way to `useful`; that is no recall."""
        with self.transaction():
            self._db.write(
                """INSERT INTO usage (id, recalls, last, utility) VALUES (?, 0, ?, ?)
                   ON CONFLICT (id) DO UPDATE SET utility = usage.utility + ? * (? - usage.utility)""",
                *(id, self._at(), pace * useful, pace, useful),
            )

    def uses(self, since: int = 0) -> list[tuple[int, str, datetime]]:
        """(n, id, when) of each use of a plaintext cube after the one numbered `since`, in the order of their counting;
        memories of one answer share their time. Those of a deleted cube are gone with it."""
        rows = self._db.rows("SELECT n, id, at FROM uses WHERE n > ? ORDER BY n", since)
        return [(n, id, moment(at)) for n, id, at in rows]

    def accesses(self) -> list[tuple[datetime, str, str]]:
        """When, which user, and the first cube of each topic group that was used then; the latest, in order."""
        sql = """SELECT u.at, u.user_id, h.segment, u.id FROM uses u JOIN heads h ON h.id = u.id
                 WHERE u.n > (SELECT max(n) FROM uses) - ? ORDER BY u.n"""
        first: dict[tuple[str, str, str], str] = {}
        for at, user_id, segment, id in self._db.rows(sql, ACCESSES):
            first.setdefault((at, user_id, segment), id)
        return [(moment(at), user_id, id) for (at, user_id, _), id in first.items()]

    def repeat(self, id: str, said: datetime | None, origin: str) -> None:
        """A memory was told again."""
        with self.transaction():
            self._db.write("UPDATE heads SET repeats = repeats + 1 WHERE id = ?", id)
            values = (id, kept(said), self._db.stamp(), origin)
            self._db.write("INSERT INTO repeats (id, said, at, origin) VALUES (?, ?, ?, ?)", *values)

    def repeats(self, id: str) -> list[tuple[datetime, datetime | None, str]]:
        """(when that was kept, when it was said, where) of each time that a memory was told again, oldest first."""
        rows = self._db.rows("SELECT at, said, origin FROM repeats WHERE id = ? ORDER BY n", self._resolve(id))
        return [(moment(at), moment(said) if said else None, origin) for at, said, origin in rows]

    def known_origins(self, owner: Namespace) -> set[str]:
        """Where the cubes of a namespace, of every state, come from, and where they were told again."""
        cubes = self._db.rows(
            """SELECT h.id, v.json FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version
               WHERE h.user_id = ? AND h.form = 'plaintext'""",
            owner.user_id,
        )
        heads = ((id, json.loads(content)) for id, content in cubes)
        own = {id: head["header"]["origin"] for id, head in heads if Namespace(**head["namespace"]) == owner}
        again = self._db.rows(
            "SELECT r.id, r.origin FROM repeats r JOIN heads h ON h.id = r.id WHERE h.user_id = ?", owner.user_id
        )
        return {*own.values(), *(origin for id, origin in again if id in own)}

    # what was replaced

    def supersede(self, id: str, by: str, since: datetime) -> None:
        """Write down that a memory is no longer true from `since` on, because of another."""
        with self.transaction():
            values = (id, by, kept(since), self._db.stamp())
            self._db.write("INSERT INTO superseded (id, by, since, at) VALUES (?, ?, ?, ?)", *values)

    def superseder(self, id: str) -> str | None:
        """The id of what has replaced a memory, or None where nothing has."""
        rows = self._db.rows("SELECT by FROM superseded WHERE id = ? AND undone IS NULL ORDER BY n DESC LIMIT 1", id)
        return str(rows[0][0]) if rows else None

    def last_superseding(self) -> int:
        """How often a memory was replaced: see `superseded_after`."""
        return int(self._db.rows("SELECT coalesce(max(n), 0) FROM superseded")[0][0])

    def superseded_after(self, n: int) -> list[str]:
        """The ids of the memories that were replaced after the n-th time, and are."""
        return [id for (id,) in self._db.rows("SELECT id FROM superseded WHERE n > ? AND undone IS NULL ORDER BY n", n)]

    def reinstate(self, id: str) -> None:
        """Take that back, if there is anything to take back."""
        with self.transaction():
            self._db.write("UPDATE superseded SET undone = ? WHERE id = ? AND undone IS NULL", self._db.stamp(), id)

    def superseded(self, user_id: str, known_at: datetime) -> dict[str, datetime]:
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
        cubes = (_parsed(content).model_copy(update={"state": State(state)}) for content, state in rows)
        return sorted(cubes, key=lambda cube: cube.order)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove every trace, in the file's free pages and in blobs too. Raises Conflict if a derived cube would stay,
        Held for one under a legal hold.

        The bytes go right after the commit, of a large vault in the background, soon; where that is cut short, a later
        commit or opening finishes it. `unerased` tells, and waits.
        """
        with self.transaction():
            known = [self._resolve(id) for id in ids]
            self.holds.require_none(known, "be deleted")
            left = [cube.id for cube in self.derived(*known) if cube.id not in known]
            if left:
                raise Conflict(f"{', '.join(left)} would outlive its sources; delete them together")
            self._jobs.abandon(known)
            self._jobs.hush(known)
            self._vectors.forget_around(known)
            _parsed.cache_clear()
            names = json.dumps(known)
            self._db.write(
                "INSERT INTO erasures (sha256) "
                f"SELECT DISTINCT json_extract(json, '$.payload.sha256') FROM versions WHERE id {IN}",
                names,
            )
            self._db.write("DELETE FROM indexes WHERE EXISTS (SELECT 1 FROM erasures WHERE sha256 IS NULL)")
            if self._db.rows(f"SELECT 1 FROM heads WHERE id {IN} AND form = ? LIMIT 1", names, Form.PLAINTEXT):
                self._grants.moved()  # its name could come back in a pack, as somebody else's
            self._db.write(f"DELETE FROM heads WHERE id {IN}", names)  # and, by cascade, all but its versions
            self._db.write(f"DELETE FROM versions WHERE id {IN}", names)

    # forgetting a user

    def concerned(self, user_id: str, before: datetime | None = None) -> list[str]:
        """The ids of all cubes of a user, by namespace or owner, and of all that was ever made of one of them, by
        whomever. before: only of the user's cubes that were kept before."""
        at = kept(before) or self._at()
        made: dict[str, set[str]] = {}
        roots = set()
        for id, version, content, written in self._db.rows("SELECT id, version, json, at FROM versions"):
            cube = _parsed(content)
            if user_id in (cube.namespace.user_id, cube.rights.owner) and (version > 1 or written <= at):
                roots.add(id)
            for source in cube.sources:
                made.setdefault(source.id, set()).add(id)
        out = dict.fromkeys(sorted(roots))
        for id in (queue := list(out)):  # grows while it is read
            new = [other for other in sorted(made.get(id, ())) if other not in out]
            queue += new
            out |= dict.fromkeys(new)
        return list(out)

    def bytes_of(self, ids: Iterable[str]) -> tuple[list[bytes], list[bytes], list[Path]]:
        """(texts, vectors, payloads) that the cubes are made of in all versions: as UTF-8, as float32 and int8, and
        where they lie, sealed and in the clear. What other cubes hold too is left out."""
        names = json.dumps(list(ids))
        versions = self._db.rows(f"SELECT id, json FROM versions WHERE id {IN}", names)
        others = self._db.rows(f"SELECT json FROM versions WHERE NOT id {IN}", names)
        elsewhere = {text for (content,) in others for text in _texts_of(_parsed(content))}
        said = {(id, text) for id, content in versions for text in _texts_of(_parsed(content))}
        texts = {text for _, text in said} - elsewhere
        own = json.dumps(sorted({id for id, text in said if text in texts}))
        rows = self._db.rows(
            f"SELECT r.vector, r.tokens FROM vectors v JOIN readings r ON r.n = v.n WHERE v.id {IN}", own
        )
        blobs = {c.blob.sha256 for c in (_parsed(content) for _, content in versions) if c.blob}
        shared = {c.blob.sha256 for (content,) in others if (c := _parsed(content)).blob}
        paths = [path for sha256 in sorted(blobs - shared) for path in self._places(sha256)]
        return [t.encode() for t in sorted(texts)], [bytes(b) for row in rows for b in row if b], paths

    def _places(self, sha256: str) -> set[Path]:
        """Where a payload lies, as it is on disk and in the clear."""
        kept = self._blobs.find(sha256)
        if kept is None:
            return set()
        try:
            return {kept, self._files.lend(kept, sha256)}
        except CorruptBlob:
            return {kept}

    def forget_user(self, user_id: str, ids: Iterable[str]) -> dict[str, int]:
        """Remove these cubes of a user, and what else names the user or them; how many of each. Raises Held, Conflict.

        The audit log keeps its rows, with a pseudonym in the place of the name.
        """
        known = list(ids)
        with self.transaction():
            names, counts = json.dumps(known), dict[str, int]()
            for what, sql, value in (
                ("versions", f"SELECT count(*) FROM versions WHERE id {IN}", names),
                ("vectors", f"SELECT count(*) FROM vectors WHERE id {IN}", names),
                ("uses", f"SELECT count(*) FROM uses WHERE id {IN}", names),
            ):
                counts[what] = int(self._db.rows(sql, value)[0][0])
            self.delete(known)
            counts["uses"] += self._db.write("DELETE FROM uses WHERE user_id = ?", user_id)
            counts["snapshots"] = self._snapshots.forget(user_id)
            counts["jobs"] = self._jobs.forget(known)
            self._db.write(f"DELETE FROM superseded WHERE by {IN}", names)
            for n, *move, why in self._db.rows("SELECT n, id, state, at, why FROM transitions WHERE why != ''"):
                clean = _unnamed(_without(why, known), user_id)
                if clean != why:
                    digest = checksum(*move, clean)
                    self._db.write("UPDATE transitions SET why = ?, digest = ? WHERE n = ?", clean, digest, n)
            self.holds.rename(lambda said: _unnamed(said, user_id))
            counts["rights"] = self._grants.forget(user_id)
            counts["keys"] = self._credentials.forget(user_id)
            counts |= self.extensions.forget(user_id)
            self.quarantine.forget(user_id)
            self.pipelines.forget(user_id, lambda said: _unnamed(said, user_id) != said)
            self._ledger.add("user", [user_id])
            self._ledger.add("cube", known)
            counts["audit_rows"] = self.audit_log.pseudonymise(user_id, known)
            self._db.write("INSERT INTO erasures (sha256) VALUES (NULL)")  # names go from free pages too
        return counts

    def search(self, pieces: Iterable[bytes]) -> Searched:
        """Look for bytes in all that lies on disk of this vault, in any file and whatever is left in it; of an
        encrypted one as it is and as it says. What a cube of anybody says, in any version, is passed over."""
        return search(self.path, pieces, self._says, self.sealing.unsealer, self._files.beside)

    def _says(self, piece: bytes) -> bool:
        return any(piece in content.encode() for (content,) in self._db.rows("SELECT json FROM versions"))

    def unerased(self, wait_s: float = 0.0) -> bool:
        """True while deleted bytes may still lie on disk, as somebody reads. wait_s: for so long whoever does, as what
        indexes in the background, is waited for."""
        until = time.monotonic() + wait_s
        while (left := self._owes()) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            self._erase()
        return left

    def forgotten(self) -> list[Forgotten]:
        """Who and what was forgotten, as digests: kept beside backups, and applied to one that is brought back."""
        return self._ledger.all()

    def apply_forgotten(self, entries: Iterable[Forgotten]) -> list[str]:
        """Forget in this copy of a vault what was forgotten in another; the ids of cubes that are gone. Raises Held."""
        known = {entry.digest for entry in self._ledger.all()}  # forgotten here, and may have come back since
        ledger = [entry for entry in entries if entry.digest not in known]
        cubes = [id for (id,) in self._db.rows("SELECT id FROM heads")]
        gone: dict[str, None] = {}
        with self.transaction():
            for user, at in named(ledger, "user", self._named()).items():
                ids = self.concerned(user, at)
                self.forget_user(user, ids)
                gone |= dict.fromkeys(ids)
            left = [id for id in named(ledger, "cube", cubes) if id not in gone]
            left += [cube.id for cube in self.derived(*left) if cube.id not in left]
            self.delete(left)
            self._ledger.merge(ledger)
        return [*gone, *left]

    def _named(self) -> list[str]:
        """The users that anything here names, also those who own no cube."""
        names = {o for c in self.cubes() for o in (c.namespace.user_id, c.rights.owner)}
        for table, column in _NAMES:
            names |= {name for (name,) in self._db.rows(f"SELECT DISTINCT {column} FROM {table}")}
        names |= self.extensions.users()
        spaces = self._db.rows("SELECT DISTINCT namespace FROM snapshots")
        return sorted(names | {Namespace.model_validate_json(space).user_id for (space,) in spaces})

    def _owes(self) -> bool:
        return bool(self._db.rows("SELECT 1 FROM erasures LIMIT 1"))

    def _pay(self, owing: bool) -> None:
        """The debt of `delete`, if there is one: at once where that takes some tenths of a second. Else in the
        background, where one rewriting of vault.db is enough for many deletions."""
        if not owing or next(iter(self._db.sizes().values())) < _AT_ONCE:
            return self._erase(owing)
        with self._of_erasing:
            if self._erasing is None:
                self._erasing = threading.Thread(target=self._erase_later, daemon=True)
                self._erasing.start()

    def _erase_later(self) -> None:
        """Until all is paid, also what is deleted meanwhile; who is in the way is waited for."""
        while not self._closing.wait(_SOON_S):
            self._erase()
            with self._of_erasing:
                if not self._owes():
                    self._erasing = None
                    return

    def _erase(self, owing: bool = True) -> None:
        """Pay the debt of `delete`: the blobs that nobody refers to, and what is left of the text in vault.db and in
        files of an index."""
        try:
            self._drop_copies()
            debt = self._db.rows("SELECT n, sha256 FROM erasures ORDER BY n") if owing else ()
            if not debt:
                return
            with self._db.writing():
                with self._db.transaction():  # no put can come between the question who refers to it and the removal
                    for sha256 in {sha256 for _, sha256 in debt if sha256 is not None}:
                        self._blobs.drop(sha256)
                texts = [n for n, sha256 in debt if sha256 is None]
                if texts and texts[-1] > self._vacuumed:
                    with self._db.transaction():
                        self._vectors.forget_strays()
                    self._index.sweep(alone=True)  # whoever writes one now began before the deletion
                if texts and texts[-1] > self._vacuumed and self._db.vacuum():
                    self._vacuumed = texts[-1]
                if (not texts or texts[-1] <= self._vacuumed) and self._db.clear_logs():
                    with self._db.transaction():
                        self._db.write_many("DELETE FROM erasures WHERE n = ?", [(n,) for n, _ in debt])
        except (VaultError, OSError) as error:  # as another process is writing: a later commit pays the debt
            log.warning("what was deleted has left traces on disk (%s); the next write tries again", error)

    def _drop_copies(self) -> None:
        """Of what was deleted on another machine: copies in the folder go with the next write here, or opening."""
        if self._shelf is None:
            return
        [(deleted,)] = self._db.rows("SELECT deleted FROM clock")
        if deleted != self._deleted:
            with self._db.writing():
                self._blobs.drop_copies()
                self._index.sweep()
            self._deleted = deleted

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

    # the index

    def keep_index(self, layout: str, embedder: str, change: int, arrays: Arrays) -> bool:
        """Keep what an index is after `change`, in place of what was kept; False where memories were deleted since.
        Raises VaultError."""
        return self._index.save(layout, embedder, change, arrays)

    def index(self, layout: str, embedder: str) -> tuple[int, dict[str, npt.NDArray[Any]]] | None:
        """(change, arrays) as they were kept last; None if nothing is. Raises VaultError for what does not fit."""
        return self._index.load(layout, embedder)

    def index_behind(self, layout: str, embedder: str) -> int:
        """How many cubes changed since such an index was kept; all, where none is."""
        return self._index.behind(layout, embedder)

    def drop_index(self) -> None:
        """Forget what is kept, as when it is damaged; an index is made anew."""
        with self.transaction():
            self._db.write("DELETE FROM indexes")
        self.sweep()

    # blobs

    def staging(self) -> AbstractContextManager[Path]:
        """A path where nothing is yet, for a file or a folder; what is left there afterwards is removed.

        Keep the block open until the cube is put: meanwhile `sweep` leaves its blob alone.
        """
        return self._blobs.staging()

    def store(self, path: Path) -> tuple[str, int]:
        """Move a staged file or folder into blobs/; its sha256 and bytes. A damaged blob of that name is replaced.

        Raises QuotaExceeded.
        """
        ready = self._blobs.seal(path)
        with self.transaction():  # as removing a blob is, in this process or another
            if self._blobs.find(ready.sha256) is None:
                self._stats.require_room(ready.size, ready.size)
            self._blobs.place(ready)
        return ready.sha256, ready.size

    def blob_path(self, blob: Blob, verified: bool = True) -> Path:
        """Where the payload can be read, after its digest was verified. Raises CorruptBlob.

        verified: False for a reader that verifies a checksum of its own; then only a missing file is told.
        """
        return self._blobs.verified(blob.sha256) if verified else self._blobs.there(blob.sha256)

    def has_payload(self, cube: MemCube) -> bool:
        """False where the file of a cube that should have one is gone."""
        return cube.blob is None or self._blobs.find(cube.blob.sha256) is not None

    def blob_file(self, blob: Blob) -> Path:
        """What of the payload lies on disk, maybe encrypted. Raises CorruptBlob."""
        return self._blobs.stored(blob.sha256)

    def forget_lent(self, blob: Blob) -> None:
        """What an encrypted vault keeps of a payload in memory goes; the next reader decrypts it again."""
        self._files.forget(blob.sha256)

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

    def queue_job(self, kind: str, payload: dict[str, Any]) -> str:
        """Write down work that nobody waits for; its id, or that of the same work where that is open already."""
        return self._jobs.queue(kind, payload)

    def take_job(self, passed: Collection[str] = (), kind: str | None = None) -> Job | None:
        """Begin the oldest job that nobody waits for, of this kind or of every kind, and that is not among those passed
        over."""
        return self._jobs.take(passed, kind)

    def describe_job(self, id: str, payload: dict[str, Any]) -> None:
        """Say more closely what a running job does."""
        self._jobs.describe(id, payload)

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

    def jobs(
        self, state: Literal["queued", "running", "interrupted", "done", "undone"], kind: str | None = None
    ) -> list[Job]:
        """Oldest first. Running ones of a process that died are ended by the next opening that finds itself alone."""
        return self._jobs.all(state, kind)

    def _clear_work(self) -> None:
        """Of jobs that have ended: it may be half an adapter of a text that was deleted."""
        if self._blobs.has_work():
            going_on = (*OPEN, "cancelled")
            with self._db.writing():  # no job can begin between the question which there are and the removal
                self._blobs.clear_work(job.id for state in going_on for job in self._jobs.all(state))

    # cards

    def keep_card(self, host: str, card: dict[str, Any]) -> None:
        """Keep what was measured on the host with this digest, in place of what was."""
        with self.transaction():
            self._db.write("DELETE FROM cards WHERE host = ?", host)
            self._db.write("INSERT INTO cards VALUES (?, ?, ?)", host, json.dumps(card), self._db.stamp())

    def card(self, host: str) -> dict[str, Any] | None:
        """What was measured on the host with this digest; None if nothing was."""
        rows = self._db.rows("SELECT json FROM cards WHERE host = ?", host)
        return dict(json.loads(rows[0][0])) if rows else None

    # rights

    def grant(self, grant: Grant, by: str) -> None:
        """Keep a relation, in place of the same for the same purpose. Raises InputError for a name that is not kept."""
        self.guard.require_name(grant.purpose, "a purpose")
        self._require_names(grant.to)
        with self.transaction():
            self._grants.put(grant, by)

    def revoke(
        self, on: str | Namespace, to: Subject, relation: Relation | None = None, purpose: str | None = None
    ) -> int:
        """Take relations back; None: of every relation, for every purpose. How many there were."""
        with self.transaction():
            return self._grants.remove(on, to, relation, purpose)

    def grants(self) -> list[Grant]:
        """All that are in force, oldest first."""
        return self._grants.all()

    def granted(self, caller: Namespace, purpose: str) -> list[Grant]:
        """Those in force that reach a caller, itself or through groups, for a purpose."""
        return self._grants.of(caller, purpose)

    def rights_state(self) -> RightsState:
        """Another whenever somebody's rights may be, in this process or another."""
        return self._grants.state()

    def join(self, group: Group, member: Subject) -> None:
        """Raises InputError for a name that is not kept."""
        self._require_names(group, member)
        with self.transaction():
            self._grants.join(group, member)

    def _require_names(self, *subjects: Subject) -> None:
        for subject in subjects:
            if isinstance(subject, Group):
                self.guard.require_name(subject.name, "a group")

    def leave(self, group: Group, member: Subject) -> bool:
        """Whether it was a member."""
        with self.transaction():
            return self._grants.leave(group, member)

    def members(self, owner: str) -> dict[Group, list[Subject]]:
        """The members of each group of an owner."""
        return self._grants.members(owner)

    def groups_with(self, caller: Namespace) -> list[Group]:
        """The groups that a caller belongs to, itself or through others."""
        return self._grants.groups_with(caller)

    # credentials

    def add_key(self, namespace: Namespace, purposes: Sequence[str], until: datetime | None) -> tuple[str, Credential]:
        """A new key, which nothing tells again, and what it stands for. Raises InputError for a purpose that is not
        kept."""
        for purpose in purposes:
            self.guard.require_name(purpose, "a purpose")
        with self.transaction():
            return self._credentials.add(namespace, purposes, until)

    def match_key(self, key: str) -> Credential | None:
        """What a key stands for, if it is one that is in force."""
        return self._credentials.match(key)

    def revoke_key(self, id: str) -> None:
        """Raises NotFound."""
        with self.transaction():
            self._credentials.revoke(id)

    def keys(self) -> list[Credential]:
        """Oldest first, those that have ended too."""
        return self._credentials.all()

    # audit

    def audit(self, caller: str, action: str, target: str, allowed: bool, why: str) -> None:
        """Write down a decision: a refusal is on disk when this returns, what was allowed with the next write that is.
        Refused inside a transaction, which could undo it."""
        self.audit_log.append(caller, action, target, allowed, why)

    def audit_rows(self, limit: int | None = None) -> list[AuditRow]:
        """The last `limit` decisions, or all; oldest first."""
        return self.audit_log.rows(limit)

    def verify_audit(self) -> list[str]:
        """Rows that were changed, removed or put in."""
        return self.audit_log.verify().problems

    # upkeep

    def stats(self) -> dict[str, Any]:
        """How much of what it holds, and how near that is to its quotas; bytes of files as they are on disk."""
        return self._stats.all()

    def shrink(self) -> None:
        """Give back the memory of what was read or written before, and is read again when it is needed."""
        self._db.shrink()

    def compact(self) -> tuple[int, int]:
        """Give back the space of what was deleted, and sweep; bytes on disk before and after. Raises VaultError."""
        before = self._stats.bytes()
        self.sweep()
        self._db.compact()
        return before, self._stats.bytes()

    def sweep(self) -> list[str]:
        """Delete what a crash left in tmp/ and blobs nobody refers to; the names removed.

        Removes nothing while another process has the vault open or a payload is being staged.
        """
        with self._lock.alone() as here, self._db.alone() as there, self._db.writing():
            alone = here and there
            return [*self._blobs.sweep(), *self._index.sweep(alone)] if alone else []

    def check(self) -> list[str]:
        """What is wrong with the stored data, in words; reads every byte, in a connection of its own."""
        if self._erasing:
            self.unerased(_PATIENCE_S)
        return self._store.problems(self._place, lambda *_: None, self.sealing)


def absent(id: str) -> NotFound:
    """The error for an id that fits no cube or several; governance raises it for a cube that may not be seen.

    It names no near ids: they could be those of another user.
    """
    return NotFound(f"no cube {id}; give the whole id as `memos ls` lists it")


def _unshared(cube: MemCube) -> MemCube:
    """As it is kept: grants tell who may read it."""
    if not cube.rights.readers:
        return cube
    return cube.model_copy(update={"rights": cube.rights.model_copy(update={"readers": ()})})


def _belongs(cube: MemCube) -> object:
    """What rights to a cube depend on, beside what is granted."""
    return cube.namespace, cube.rights, cube.header.kind, {source.id for source in cube.sources}


def _texts_of(cube: MemCube) -> list[str]:
    """What a cube says, in one piece each."""
    match cube.payload:
        case Text(text=text, probes=probes):
            return [text, *(said for probe in probes for said in (probe.question, probe.answer))]
        case Turn(question=question, answer=answer, shown=shown):
            return [question, answer, *shown]
        case _:
            return []


def _without(why: str, ids: Collection[str]) -> str:
    """A reason that names none of the cubes."""
    known = set(ids)
    return " ".join(_FORGOTTEN if word.strip(",") in known else word for word in why.split(" "))


def _unnamed(said: str, user_id: str) -> str:
    """The same without the name of a user."""
    return re.sub(rf"(?<!\w){re.escape(user_id)}(?!\w)", _FORGOTTEN, said)


def _names_missing(cube: MemCube, source: Source) -> str:
    return f"cube {cube.id} is derived from {source.id} version {source.version}, which is not there"


_of_json = TypeAdapter(MemCube).validator.validate_json
_STATES = {state.value: state for state in State}


@lru_cache(maxsize=1 << 11)  # the cubes of busy topic groups are read with every request
def _parsed(content: str) -> MemCube:
    try:
        cube: MemCube = _of_json(content)
    except ValidationError:
        raise odd_row(content) from None
    for part in (cube, cube.namespace, cube.rights, cube.header, cube.payload):
        # a set for each would be two thirds of what a cube takes here, 3 of 4.4 kB
        object.__setattr__(part, "__pydantic_fields_set__", _fields(type(part)))
    return cube


@cache
def _fields(kind: type[BaseModel]) -> set[str]:
    """Of a value that was read as it is kept, whole: pydantic copies the set before it changes one."""
    return set(kind.model_fields)


def _usage(recalls: int | None, last: str | None, repeats: int, utility: float | None) -> Usage:
    when = moment(last) if recalls else None
    try:
        return Usage(recalls=recalls or 0, last_recalled=when, repeats=repeats, utility=utility or 0.0)
    except ValidationError:
        raise odd_row((recalls, repeats, utility)) from None


def _state(written: str) -> State:
    try:
        return _STATES[written]
    except KeyError:
        raise odd_row(written) from None
