"""The only door to stored cubes: their versions and states, and the tables and payloads that belong to them.

Knows how a cube is kept and deleted, in all its places together. Must not know why a cube is wanted, who wants it, or
which state may follow which.

    vault.db      versions, transitions, uses (append-only), heads, usage, sources, jobs, audit (store/schema.py)
    vectors.db    of texts and of their tokens (tables/vector_table.py)
    blobs/, tmp/  payloads (blobs/blob_store.py); swept when nobody else has the vault open
    index/        what an index was when it was last kept (blobs/index_store.py)
    work/         of jobs that can be taken up again
    signing.key   that signs the audit log and packs, and signing.key.head, the last checkpoint (audit/signing.py)
    sums.json     what all files are, while the vault is closed (care/file_sums.py)
    reserve       room for reading and deleting on a full disk (store/reserve.py)
    vault.db-next, vault.db-turn  whose turn it is to write (store/transactions.py)
    lock          held shared by each open vault, so that one knows when it is alone (store/folder_lock.py)

A store plug-in (stores.py) adds to these, as key.json of an encrypted vault, or has the rows elsewhere.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memos.config import GovernanceConfig, JobsConfig, QuotaConfig
from memos.cube import Form, MemCube, Namespace, Source, State, ids_after
from memos.errors import Conflict, CorruptBlob, NotFound
from memos.infrastructure.guard.guard import Guard
from memos.infrastructure.vault.audit.audit_log import AuditLog
from memos.infrastructure.vault.blobs.blob_store import BlobStore, Shelf
from memos.infrastructure.vault.blobs.index_store import IndexStore
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.care.stats import VaultStats
from memos.infrastructure.vault.erasing import OWED, Erasing
from memos.infrastructure.vault.store.extension_tables import ExtensionTables
from memos.infrastructure.vault.store.folder_lock import FolderLock
from memos.infrastructure.vault.store.transactions import IN, LATEST, moment
from memos.infrastructure.vault.stores import OpenStore, Place, shelf_of, store_of
from memos.infrastructure.vault.tables.ageing_table import AgeingTable, SupersededTable
from memos.infrastructure.vault.tables.cube_table import (
    CUBE,
    CURRENT,
    DERIVED,
    STATE,
    CubeRows,
    CubeWriter,
    UsageTable,
    kept,
)
from memos.infrastructure.vault.tables.grant_table import CredentialTable, GrantTable
from memos.infrastructure.vault.tables.job_list import OPEN, JobList, UndoTable
from memos.infrastructure.vault.tables.set_aside import HoldTable, QuarantineTable, SnapshotTable
from memos.infrastructure.vault.tables.vector_table import CardTable, VectorTable
from memos.infrastructure.vault.user_erasure import UserErasure
from memos.rights import Grant

log = logging.getLogger("memos")
_APART = {"state", "usage"}  # of a cube, from its versions
_SHORTEST_PREFIX = 6  # characters of an id, in place of the whole


@dataclass(frozen=True)
class News:
    """What has happened in a vault: its last change and the last that was a deletion, and what came since a time."""

    change: int
    deletion: int
    at: datetime  # now
    used: bool  # a memory was used since
    lapsed: bool  # one has expired since
    replaced: bool  # any has ever been replaced by another, and is


class MemVault:
    """Thread safe: reads wait for nobody, writes for their turn. A write that returned outside a transaction is on
    disk. What is kept beside cubes is asked for by its own table: `vault.jobs`, `vault.grants`, `vault.blobs`, …"""

    def __init__(
        self,
        path: Path,
        quota: QuotaConfig = QuotaConfig(),
        governance: GovernanceConfig = GovernanceConfig(),
        key: str | None = None,
        scratch: Path | None = None,
        url: str | None = None,
        blobs: str | None = None,
        cache_bytes: int = 1 << 32,
        jobs: JobsConfig = JobsConfig(),
    ) -> None:
        """Open the vault in the folder `path`, made if absent.

        key: where the key of an encrypted one is; None: where it was, or no encryption. scratch: for plaintext of an
        encrypted one, on a file system in memory; None: the system's. url: of the server that its rows and payloads are
        on; None: where they were, or in the folder. blobs: URL of where payloads lie, if neither there nor here, with
        copies here of at most cache_bytes; None: as it was. Raises VaultError, ConfigError.
        """
        self.path, self.guard = path, Guard(governance)
        self._lock, place = FolderLock(path), Place(path, key, scratch, url, blobs, cache_bytes)
        with ExitStack() as failing:
            failing.callback(self._lock.close)
            with self._lock.alone() as here:
                store = store_of(place).open(place, here)
                failing.callback(store.rows.close)
                with store.rows.alone() as there:
                    self._sums = file_sums.take(path)
                    shelf = shelf_of(place, store)
                    self._assemble(store._replace(shelf=shelf), store.shelf, quota, governance, jobs)
                    self._settle(here and there)
            failing.pop_all()  # it is open

    def _assemble(
        self,
        store: OpenStore,
        indexes: Shelf | None,
        quota: QuotaConfig,
        governance: GovernanceConfig,
        jobs: JobsConfig,
    ) -> None:
        """The tables and payloads, over an open store. indexes: where those lie, if not in the folder."""
        db, files, self.sealing, shelf, _ = store
        self._db, self._files, self._writer = db, files, CubeWriter(db)
        self._rows = self.statements = CubeRows(db)
        self.stats = VaultStats(self.path, db, quota)
        self.audit_log = AuditLog(db, self.path, governance.audit)
        self.jobs = JobList(db, self.transaction, files.has_work, jobs)
        self.vectors, self.cards = VectorTable(db), CardTable(db)
        self.snapshots = SnapshotTable(db, self.guard.as_written, self.owned)
        named = self.guard.require_name
        self.grants, self.credentials = GrantTable(db, named), CredentialTable(db, named)
        self.quarantine, self.pipelines = QuarantineTable(db), UndoTable(db)
        self.holds, self.extensions = HoldTable(db, self.guard.as_written), ExtensionTables(db)
        self.usage, self.superseded, self.ageing = UsageTable(db), SupersededTable(db), AgeingTable(db)
        self.blobs = BlobStore(self.path, files, db, self.stats.require_room, shelf)
        self.index = IndexStore(self.path, files.format, db, indexes)
        self.erasing = Erasing(db, self.blobs, self.index, self.vectors, shelved=shelf is not None)
        self.forgetting = UserErasure(self, db, self.blobs, files)

    def _settle(self, alone: bool) -> None:
        """What others left behind is ended, swept and paid. alone: nobody else has the vault open."""
        ids_after(self.now())
        self.erasing.drop_copies()
        if alone:
            self.jobs.end_cut_off()
            self.blobs.sweep()
            for name in self.index.sweep(alone=True):
                log.warning("%s is not named by the vault as it is now, and was removed", self.path / name)
            self._clear_work()
            self.erasing.pay()

    def close(self) -> None:
        """What is not signed yet of the audit log is signed; the last to close sums up what the files are."""
        if self._lock.closed:
            return
        self.erasing.close()
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

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several calls land together or not at all; a nested one that raises undoes only its own part.

        Other threads and processes wait to write meanwhile: no model runs in here.
        """
        outermost = not self._db.in_transaction
        with self._db.transaction():
            yield
            owing = outermost and (self.erasing.shelved or self._db.rows(OWED))  # asked in here, where it costs least
        if outermost and self.jobs.ended:
            self._clear_work()
        if owing:
            self.erasing.pay()

    def now(self) -> datetime:
        """The time; never before one that was written down here, even where the machine's clock went back."""
        return self._db.now()

    def put(self, *cubes: MemCube) -> None:
        """Keep new cubes, or the next versions of some, all together or none; several at once take about half the time
        of one after the other. A next version keeps the state that the cube is in.

        What is never to be stored (governance.redaction) is taken out, and their readers become grants, and are not
        kept in them. Raises Conflict when a version is not the one after the current, NotFound for a source that does
        not exist, CorruptBlob for a payload that was not stored first, QuotaExceeded, VaultError for a full disk.
        """
        cubes = tuple(map(self.guard.as_kept, cubes))
        with nullcontext() if self._db.in_transaction else self.transaction():
            self._writer.require_next(cubes)
            new = {(cube.id, cube.version) for cube in cubes}
            for cube in cubes:
                # what is found stays until the cube is in
                if (cube.blob or cube.stored) and not self.blobs.has(cube.stored):
                    raise CorruptBlob(
                        f"cube {cube.id} names blob {cube.stored}, which is not in {self.path}; store() it first"
                    )
                for source in self._writer.missing_sources(cube) if cube.sources else ():
                    if (source.id, source.version) not in new:
                        raise NotFound(f"{_names_missing(cube, source)}; derive it again from what `memos ls` lists")
            self._db.require_room()
            at = self._db.stamp()
            contents = [(c.id, c.version, _unshared(c).model_dump_json(exclude=_APART), at) for c in cubes]
            if self.stats.limited:
                new_of = [cube.namespace.user_id for cube in cubes if cube.version == 1]
                self.stats.require_room(sum(len(content) for _, _, content, _ in contents), 0, new_of)
            with self._db.indivisible():
                if any(c.version > 1 and _belongs(_unshared(c)) != _belongs(self.get(c.id)) for c in cubes):
                    self.grants.moved()
                self._writer.write(cubes, contents, at)
                if later := [cube.id for cube in cubes if cube.version > 1]:
                    self.jobs.abandon(later)
                for cube in cubes:
                    for reader in cube.rights.readers:
                        given = Grant(on=cube.id, to=Namespace(user_id=reader), relation="reader")
                        self.grants.write(given, cube.rights.owner)

    def get(self, id: str, version: int | None = None) -> MemCube:
        """The current version, or an old one, with the current state and usage. Raises NotFound.

        A prefix of `id` will do where it fits one cube alone.
        """
        found = self._of_id(id, version)
        if not found:
            known = self._resolve(id)
            found = self._of_id(known, version)
            if not found:
                raise NotFound(f"cube {known} has no version {version}; see `memos show {known}`")
        return found[0]

    def _of_id(self, id: str, version: int | None) -> list[MemCube]:
        if version is None:
            return self._rows.current("AND h.id = ?", id)
        return self._rows.read(CUBE + "WHERE h.id = ? AND v.version = ?", id, version)

    def named(self, id: str) -> list[MemCube]:
        """The current cubes that an id, or a prefix of one, may mean; in canonical order."""
        if (exact := self.at([id])) or len(id) < _SHORTEST_PREFIX:
            return exact
        return self._rows.current("AND substr(h.id, 1, ?) = ?", len(id), id)

    def made(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids whose cubes are made of others."""
        sql = f"SELECT DISTINCT derived_id FROM sources WHERE derived_id {IN}"
        return {id for (id,) in self._db.rows(sql, json.dumps(list(ids)))}

    def _resolve(self, id: str) -> str:
        if self._db.rows("SELECT 1 FROM heads WHERE id = ?", id):
            return id
        near = self._db.rows("SELECT id FROM heads WHERE substr(id, 1, ?) = ? LIMIT 2", len(id), id)
        if len(near) != 1 or len(id) < _SHORTEST_PREFIX:
            raise absent(id)
        return str(near[0][0])

    def cubes(
        self,
        *,
        form: Form | None = None,
        states: Iterable[State] | None = None,
        segment: str | None = None,
        users: Iterable[str] | None = None,
    ) -> list[MemCube]:
        """Current cubes in canonical order; None leaves a filter out. users: in whose namespaces they are."""
        sql, values = CURRENT, list[str]()
        if form is not None:
            sql, values = sql + "AND h.form = ? ", [*values, form]
        if segment is not None:
            sql, values = sql + "AND h.segment = ? ", [*values, segment]
        if users is not None:
            sql, values = sql + f"AND h.user_id {IN} ", [*values, json.dumps(list(users))]
        if states is not None:
            sql, values = sql + f"AND {STATE} {IN} ", [*values, self.now().isoformat(), json.dumps(list(states))]
        return self._rows.read(sql, *values)

    def at(self, ids: Iterable[str]) -> list[MemCube]:
        """The current versions of these, in their order; one that is not there is left out."""
        wanted = list(ids)
        found = {c.id: c for c in map(self._rows.cube, self._db.rows(CURRENT + f"AND h.id {IN}", json.dumps(wanted)))}
        return [found[id] for id in wanted if id in found]

    def last_change(self) -> int:
        """Grows with every change of a cube's version or state, in this process or another."""
        return int(self._db.rows("SELECT n FROM clock")[0][0])

    def news(self, use: int, after: datetime) -> News:
        """What an index that has read up to this use, and up to this time, still has to read."""
        sql = f"""SELECT n, deleted, {LATEST}, EXISTS (SELECT 1 FROM uses WHERE n > ?),
                  EXISTS (SELECT 1 FROM heads WHERE expires > ? AND expires <= {LATEST}),
                  EXISTS (SELECT 1 FROM superseded WHERE undone IS NULL) FROM clock"""
        now = kept(self.now())
        [(change, deleted, at, used, lapsed, replaced)] = self._db.rows(sql, now, now, use, kept(after), now, now)
        self._db.heard(at)  # what another process has written down
        return News(int(change), int(deleted), moment(at), bool(used), bool(lapsed), bool(replaced))

    def changed_since(self, n: int, states: Iterable[State]) -> tuple[list[MemCube], list[str]]:
        """What changed after `n`: plaintext cubes that are in one of `states`, and the ids of others that are there."""
        fits = f"CASE WHEN h.form = ? AND {STATE} {IN} THEN 1 ELSE 0 END"
        sql = CURRENT.replace("SELECT", f"SELECT h.id, {fits},", 1) + "AND h.id IN (SELECT id FROM changes WHERE n > ?)"
        rows = self._db.rows(sql, Form.PLAINTEXT, kept(self.now()), json.dumps(list(states)), n)
        return [self._rows.cube(row[2:]) for row in rows if row[1]], [row[0] for row in rows if not row[1]]

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
        sql = CUBE.replace("SELECT ", "SELECT v.at, ", 1) + "WHERE h.id = ? ORDER BY v.version"
        return [(moment(at), self._rows.cube(row)) for at, *row in self._db.rows(sql, self._resolve(id))]

    def transitions(self, id: str) -> list[tuple[datetime, State, str]]:
        """The states it has been in and why, oldest first."""
        return self._rows.transitions(self._resolve(id))

    def set_state(self, id: str, state: State, why: str) -> None:
        """Only MemLifecycle calls this: it knows which moves there are. `why` never quotes a cube's content; what is
        never stored (governance.redaction) is taken out of it."""
        with self.transaction():
            self._writer.move([self._resolve(id)], state, self._db.stamp(), self.guard.as_written(why))

    def derived(self, *ids: str) -> list[MemCube]:
        """Current cubes derived from any of `ids`, directly or through other cubes, in canonical order."""
        return self._rows.current(f"AND h.id IN ({DERIVED})", json.dumps(ids))

    def payloads_of(self, ids: Iterable[str]) -> list[MemCube]:
        """The KV and adapters derived from any of `ids`, directly or through other cubes, in canonical order."""
        sql = CURRENT + f"AND h.form != ? AND h.id IN ({DERIVED})"
        return self._rows.read(sql, Form.PLAINTEXT, json.dumps(list(ids)))

    def users(self) -> list[str]:
        """Those who have a cube."""
        return [user for (user,) in self._db.rows("SELECT DISTINCT user_id FROM heads ORDER BY user_id")]

    def owned(self, owner: Namespace) -> list[MemCube]:
        """The current cubes of a namespace that belong to its user, in canonical order."""
        own = self._rows.current("AND h.user_id = ?", owner.user_id)
        return [c for c in own if owner.covers(c.namespace) and c.rights.owner == owner.user_id]

    def delete(self, ids: Iterable[str]) -> None:
        """Remove every trace, in the file's free pages and in blobs too. Raises Conflict if a derived cube would stay,
        Held for one under a legal hold.

        The bytes go right after the commit, of a large vault in the background, soon; where that is cut short, a later
        commit or opening finishes it. `erasing.wait` tells, and waits.
        """
        with self.transaction():
            known = [self._resolve(id) for id in ids]
            self.holds.require_none(known, "be deleted")
            if left := [cube.id for cube in self.derived(*known) if cube.id not in known]:
                raise Conflict(f"{', '.join(left)} would outlive its sources; delete them together")
            self.jobs.abandon(known)
            self.jobs.hush(known)
            self.vectors.forget_around(known)
            names = json.dumps(known)
            sql = f"""INSERT INTO erasures (sha256) SELECT json_extract(json, '$.payload.sha256') FROM versions
                      WHERE id {IN} UNION SELECT NULL FROM heads WHERE id {IN} AND form = ?"""
            self._db.write(sql, names, names, Form.PLAINTEXT)
            self._db.write("DELETE FROM indexes WHERE EXISTS (SELECT 1 FROM erasures WHERE sha256 IS NULL)")
            if self._db.rows(f"SELECT 1 FROM heads WHERE id {IN} AND form = ? LIMIT 1", names, Form.PLAINTEXT):
                self.grants.moved()  # its name could come back in a pack, as somebody else's
            self._writer.delete(known)

    def _clear_work(self) -> None:
        """Of jobs that have ended: it may be half an adapter of a text that was deleted."""
        self.jobs.ended = False
        if self._files.has_work():
            with self._db.writing():  # no job can begin between the question which there are and the removal
                self._files.clear_work({job.id for job in self.jobs.all(*OPEN, "cancelled")})

    def shrink(self) -> None:
        """Give back the memory of what was read or written before, and is read again when it is needed."""
        self._db.shrink()

    def compact(self) -> tuple[int, int]:
        """Give back the space of what was deleted, and sweep; bytes on disk before and after. Raises VaultError."""
        before = self.stats.bytes()
        self.sweep()
        self._db.compact()
        self.blobs.settle(thorough=True)
        return before, self.stats.bytes()

    def sweep(self) -> list[str]:
        """Delete what a crash left in tmp/ and blobs nobody refers to; the names removed.

        Removes nothing while another process has the vault open or a payload is being staged.
        """
        with self._lock.alone() as here, self._db.alone() as there, self._db.writing():
            alone = here and there
            return [*self.blobs.sweep(), *self.index.sweep(alone)] if alone else []


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


def _names_missing(cube: MemCube, source: Source) -> str:
    return f"cube {cube.id} is derived from {source.id} version {source.version}, which is not there"
