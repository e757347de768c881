"""Checks that a vault, or a backup of one, is what was written; reads every byte and changes none.

    of a closed vault       every file against the sums that were kept when it was closed (file_sums.py)
    of one that is open,    the write-ahead log against its own checksums (wal_file.py)
    or whose process died
    of any                  SQLite's structure; rows against their checksums, or against the versions that they follow
                            from; payloads, kept index and decisions against their digests

Must not know how anything is repaired.
"""

from __future__ import annotations

import fcntl
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from pydantic import ValidationError

from memos.cube import MemCube
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs import index_store
from memos.infrastructure.vault.blobs.blob_store import Blobs, Shelf, referrers
from memos.infrastructure.vault.blobs.vault_files import FileFormat
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.store.extension_tables import ExtensionTable, described
from memos.infrastructure.vault.store.transactions import IN, Row, Rows
from memos.infrastructure.vault.stores import Place, Sealing, beyond, shelf_kind, store_of
from memos.infrastructure.vault.tables.cube_table import HEAD, checksum, facts, head, sources
from memos.plugins.care import audit, wal_file
from memos.plugins.care.reader import WAY_OUT, CannotRead, VaultReader
from memos.plugins.progress import Show

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault

PATIENCE_S = 30.0  # for so long what is being erased is waited for
_Item = TypeVar("_Item")
_BATCH = 2000  # cubes
_TIMES = {  # of rows that have no checksum of their own
    "usage": ("last",),
    "uses": ("at",),
    "repeats": ("at", "said"),
    "superseded": ("since", "at", "undone"),
    "jobs": ("started", "ended"),
    "snapshots": ("at",),
    "pipelines": ("at",),
    "cards": ("at",),
    "grants": ("at", "until"),
    "credentials": ("at", "until", "revoked"),
    "quarantine": ("at",),
    "newcomers": ("at",),
    "holds": ("at",),
    "forgotten": ("at",),
}


@runtime_checkable
class ChecksItself(Protocol):
    """A store that looks at more, or at other things, than the files of a vault."""

    def problems(self, place: Place, show: Show, sealing: Sealing | None = None) -> list[str]:
        """As `problems` of this module."""


def problems(place: Place, show: Show = lambda *_: None, sealing: Sealing | None = None) -> list[str]:
    """What is wrong with a vault, in words; reads every byte and changes none. sealing: as it is known already.

    Raises VaultError where there is none, or one of another schema; WrongKey, KeyUnusable.
    """
    store = store_of(place)
    if isinstance(store, ChecksItself):
        return store.problems(place, show, sealing)
    return examine(place.folder, show, sealing or store.sealing(place))


def problems_of(vault: MemVault) -> list[str]:
    """The same of a vault that is open here, in a connection of its own."""
    if vault.erasing.going_on:
        vault.erasing.wait(PATIENCE_S)
    return problems(Place(vault.path), sealing=vault.sealing)


def examine(folder: Path, show: Show, sealing: Sealing) -> list[str]:
    """What is wrong with a vault in files. Raises VaultError where there is none, or one of another schema."""
    if not (folder / "vault.db").is_file():
        raise VaultError(f"{folder} holds no vault: there is no vault.db; name the folder of a vault, or a backup")
    alone = not in_use(folder)
    databases = [folder / name for name in ("vault.db", "vectors.db")]
    log = [problem for file in databases for problem in wal_file.problems(file)]
    if log and alone:
        return log  # SQLite would take the log to end there, and note that down
    summed = (folder / file_sums.NAME).exists()
    found = log + _of_files(folder, databases, show) + of_content(folder, alone, sealing, show)
    if found and alone and (in_use(folder) or summed != (folder / file_sums.NAME).exists()):
        return examine(folder, show, sealing)  # somebody has opened it meanwhile, and what was read was changing
    return found


def in_use(folder: Path) -> bool:
    """True if somebody has the vault open."""
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _of_files(folder: Path, databases: list[Path], show: Show) -> list[str]:
    try:
        kept = file_sums.read(folder)
    except CorruptBlob as error:
        return [f"{error}; the next that opens and closes the vault writes it anew"]
    if kept is None or not all(map(wal_file.is_empty, databases)):
        return []
    show("files", 0, len(kept))
    found = changed_files(folder, kept)
    show("files", len(kept), len(kept))
    return found


def _index_problems(folder: Path, format: FileFormat, db: Rows, shelf: Shelf | None = None) -> list[str]:
    """What is wrong with the kept index of the vault in a folder, in words; the next opening makes it anew."""
    found = list[str]()
    for name, digest in db.rows("SELECT name, digest FROM indexes"):
        try:
            index_store.read_kept(index_store.place_of(folder / "index", name, shelf), format, digest)
        except CorruptBlob as error:
            found.append(str(error))
    return found


def changed_files(folder: Path, kept: file_sums.Sums) -> list[str]:
    """How files differ from what was kept, in words."""
    there = dict(file_sums.files_of(folder))
    found = [f"{folder / name} is missing" for name in kept if name not in there]
    for name, path in there.items():
        if name not in kept:
            found.append(f"{path} is not a file of this vault; remove it")
            continue
        size, was = path.stat().st_size, kept[name]
        if size != was.size:
            found.append(f"{path} has {size} bytes, and had {was.size} when the vault was closed")
        for i, (now, then) in enumerate(zip(file_sums.sums_of(path), was.sums, strict=False)):
            if now != then:
                found.append(f"{path} is not what was written, after byte {i * file_sums.EXTENT}")
    return found


def of_content(folder: Path, alone: bool, sealing: Sealing, show: Show = lambda *_: None) -> list[str]:
    """What is wrong with what the files say. alone: nobody has the vault open. Raises VaultError for another schema."""
    try:
        with VaultReader(folder, alone, sealing.driver) as reader:
            again = partial(VaultReader, folder, alone=False, driver=sealing.driver)
            return _Content(folder, reader, alone, show, sealing.format, again).findings()
    except CannotRead as error:
        return [str(error)]
    except (TypeError, ValueError, LookupError) as error:  # a bit can turn a text into bytes, or a name into another
        return [f"vault.db: a row holds what was never written ({error}); {WAY_OUT}"]


def of_rows(
    folder: Path,
    snapshot: Callable[[], AbstractContextManager[RowsAtOnce]],
    shelf: Shelf,
    format: FileFormat,
    show: Show,
) -> list[str]:
    """What is wrong with rows and payloads that lie elsewhere. folder: with this machine's copies. Raises VaultError,
    and TypeError, ValueError or LookupError for a row that holds what was never written."""
    with snapshot() as reader:
        return _Content(folder, reader, True, show, format, snapshot, shelf).findings()


class RowsAtOnce(Rows, Protocol):
    """The rows of a vault as they are at one moment."""

    side_problem: str  # why vectors cannot be read, or ""
    padding: str  # the columns of `readings` that nothing stands in, each after ", "

    way_out: str  # of damage to the structure

    def each(self, sql: str, *values: object) -> Iterator[Row]:
        """Rows, some at a time."""

    def damage(self, of: str) -> list[str]:
        """What is wrong with the structure of "main" or "side", in words."""

    def structure(self, extensions: Iterable[ExtensionTable]) -> Iterator[str]:
        """How tables, and what their rows refer to, differ from what memos makes."""


class _Content:
    def __init__(
        self,
        folder: Path,
        reader: RowsAtOnce,
        alone: bool,
        show: Show,
        format: FileFormat,
        again: Callable[[], AbstractContextManager[RowsAtOnce]],
        shelf: Shelf | None = None,
    ) -> None:
        """again: a snapshot of a later moment."""
        self._folder, self._db, self._alone, self._show = folder, reader, alone, show
        self._format, self._again, self._shelf = format, again, shelf
        self._payload_shelf = shelf_kind().reading(folder, format, reader, shelf) if beyond(reader) else shelf

    def findings(self) -> list[str]:
        if broken := self._db.damage("main"):  # what follows would stumble over it
            return [*broken, self._db.way_out]
        side = [self._db.side_problem] if self._db.side_problem else self._db.damage("side")
        rows, vectors = list(self._rows()), side or list(self._vectors())
        payloads, index = self._payloads(self._db), self._index(self._db)
        if (payloads or index) and not self._alone:  # what was removed since the rows were read, each time, is no loss
            with self._again() as now:
                payloads = [problem for problem in self._payloads(now) if problem in payloads]
                index = [problem for problem in self._index(now) if problem in index]
        return [*rows, *vectors, *payloads, *index, *audit.broken(self._db)]

    def _rows(self) -> Iterator[str]:
        yield from self._db.structure(described(self._db))
        yield from self._versions()
        yield from self._heads()
        yield from self._times()
        if self._db.rows("SELECT 1 FROM erasures LIMIT 1"):
            yield "deleted cubes have left traces; close other processes and open the vault again"

    def _versions(self) -> Iterator[str]:
        [(count,)] = self._db.rows("SELECT count(*) FROM versions")
        for i, (*row, digest) in enumerate(self._db.each("SELECT id, version, json, at, digest FROM versions")):
            if i % _BATCH == 0:
                self._show("versions", i, count)
            if not _is_sum(row, digest):
                yield f"version {row[1]} of cube {row[0]} is not what was written"
            elif (cube := _parsed(row[2])) is None or (cube.id, cube.version) != (row[0], row[1]):
                yield f"version {row[1]} of cube {row[0]} is no cube"
        self._show("versions", count, count)
        for id, *row, digest in self._db.each("SELECT id, state, at, why, digest FROM transitions"):
            if not _is_sum((id, *row), digest):
                yield f"a move of cube {id} to {row[0]!r} is not what was written"

    def _heads(self) -> Iterator[str]:
        columns = "".join(f", h.{name}" for name in HEAD)
        sql = f"""SELECT v.json, h.state, h.since, h.repeats, v.at, h.id{columns} FROM heads h
                  JOIN versions v ON v.id = h.id AND v.version = h.version"""
        for batch in _batches(self._db.each(sql)):
            ids = json.dumps([row[5] for row in batch])
            newest = self._by_id(f"id, max(version) FROM versions WHERE id {IN} GROUP BY id", ids)
            last = self._by_id(f"id, state, at FROM transitions WHERE id {IN} ORDER BY n", ids)
            repeat_counts = self._by_id(f"id, count(*) FROM repeats WHERE id {IN} GROUP BY id", ids)
            changes = self._by_id(f"id FROM changes WHERE id {IN}", ids)
            stated = self._by_id(f"id, user_id, subject, relation, object, mode FROM facts WHERE id {IN}", ids)
            made = self._by_id(f"derived_id, source_id, source_version FROM sources WHERE derived_id {IN}", ids)
            for content, state, since, repeats, at, id, *columns_ in batch:
                cube = _parsed(content)
                if cube is None:
                    continue  # told of above
                _, moved, when = last[id][-1] if last[id] else (id, "", "")
                for what, there, should in (
                    ("what is said of it", tuple(columns_), head(cube)),
                    ("its version", cube.version, newest[id][0][1]),
                    ("its state", state, moved),
                    ("since when it is so", since, max(at, when)),
                    ("how often it was told", repeats, repeat_counts[id][0][1] if repeat_counts[id] else 0),
                    ("its facts", sorted(stated[id]), sorted(facts(cube))),
                    ("its sources", sorted(made[id]), sorted(sources(cube))),
                    ("that it has changed", id in changes, True),
                ):
                    if there != should:
                        yield f"cube {id}: {what} is not what follows from its history"
        yield from (
            f"cube {id} has versions, and no head"
            for (id,) in self._db.rows("SELECT DISTINCT id FROM versions WHERE id NOT IN (SELECT id FROM heads)")
        )

    def _by_id(self, columns: str, ids: str) -> dict[str, list[Row]]:
        """Rows of a table by their first column, which names a cube."""
        found = defaultdict[str, list[Row]](list)
        for row in self._db.each(f"SELECT {columns}", ids):
            found[row[0]].append(row)
        return found

    def _vectors(self) -> Iterator[str]:
        sql = f"SELECT id, digest, vector, tokens{self._db.padding} FROM vectors JOIN readings USING (n)"
        for id, digest, vector, tokens, *padding in self._db.each(sql):
            if digest != checksum(vector, tokens) or any(map(any, padding)):
                yield f"vectors.db: the vectors of cube {id} are not what was written"

    def _times(self) -> Iterator[str]:
        brought = {table.name: table.times for table in described(self._db) if table.times}
        for table, columns in (_TIMES | brought).items():
            for row in self._db.each(f"SELECT {', '.join(columns)} FROM {table}"):
                if not all(value is None or _is_time(value) for value in row):
                    yield f"vault.db: a row of {table} has no time: {row!r:.200}"
        [(n, deleted, at)] = self._db.rows("SELECT n, deleted, at FROM clock")
        [(latest,)] = self._db.rows("SELECT ifnull(max(n), 0) FROM changes")
        if not (latest <= n and deleted <= n and (not at or _is_time(at))):
            yield "vault.db: its clock is behind what has changed"

    def _index(self, db: Rows) -> list[str]:
        return _index_problems(self._folder, self._format, db, self._shelf)

    def _payloads(self, db: Rows) -> list[str]:
        """What is wrong with each payload that is named, or there."""
        blobs, found = Blobs(self._folder, self._format, partial(referrers, db), self._payload_shelf), list[str]()
        sha256 = "json_extract(json, '$.payload.sha256')"
        named = f"SELECT DISTINCT {sha256} FROM versions WHERE {sha256} IS NOT NULL"
        wanted = {sha256 for (sha256,) in db.rows(named)}
        every = sorted(wanted | set(blobs.all()))
        for i, sha256 in enumerate(every):
            self._show("payloads", i, len(every))
            try:
                problem = blobs.problem(sha256)
            except VaultError as error:  # they are out of reach, all of them
                return [*found, str(error)]
            if problem and (sha256 in wanted or blobs.here(sha256)):
                found.append(problem)
        self._show("payloads", len(every), len(every))
        return found


def _is_sum(row: Iterable[Any], digest: str) -> bool:
    try:
        return checksum(*row) == digest
    except UnicodeEncodeError:
        return False


def _parsed(content: str) -> MemCube | None:
    try:
        return MemCube.model_validate_json(content)
    except ValidationError:
        return None


def _is_time(value: object) -> bool:
    try:
        return datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False


def _batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch
