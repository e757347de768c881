"""Makes a backup of a vault while others write to it, verifies it, and restores it.

    backup.json                            what is in the folder, with a checksum of its own
    vault.db, vectors.db, index/, blobs/   as in a vault
    signing.key                            the private key, if the vault has one of its own; guard it as the memories
    key.json                               of an encrypted one, all of which is encrypted in the backup, too

All is written beside the target, and renamed when it is whole and on disk. Must not know what the rows are for.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import xxhash

from memos.config import GovernanceConfig
from memos.errors import CorruptBlob, InputError, VaultError
from memos.infrastructure.vault.audit.signing import KEY
from memos.infrastructure.vault.blobs.blob_store import Blobs
from memos.infrastructure.vault.blobs.vault_files import PlainFormat, digest, digest_of, remove
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import on_disk
from memos.infrastructure.vault.store.on_disk import fsync, fsync_all
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION, require_known
from memos.infrastructure.vault.store.transactions import clock
from memos.infrastructure.vault.stores import (
    PLAIN_SEALING,
    SHELF_OBJECTS,
    SHELF_PLACES,
    Place,
    Sealing,
    beyond,
    store_of,
)
from memos.infrastructure.vault.user_erasure import Forgotten, entries, named
from memos.plugins.care import check as vault_check
from memos.plugins.care.reader import VaultReader
from memos.plugins.progress import Show

log = logging.getLogger("memos")
Value = TypeVar("Value")
Result = TypeVar("Result")
NAME = "backup.json"
DATABASES = {"main": "vault.db", "side": "vectors.db"}
_TRIES = 10
_PIECE = 1 << 20  # bytes, which stay in the cache of the processor between the copy and the digest
_THREADS = 4  # so that one file is copied and another's digest computed while others wait for the disk
_PAYLOADS = "SELECT DISTINCT json_extract(json, '$.payload.sha256') AS b FROM versions WHERE b IS NOT NULL ORDER BY b"


class Manifest(NamedTuple):
    """vault: the folder that it is of. files: (bytes, digest, see `_hash_of`) by name. blobs: bytes by sha256; those of
    an encrypted vault are among the files, since a payload's own digest would confirm a guess."""

    vault: str
    schema: int
    at: str
    files: dict[str, tuple[int, str]]
    blobs: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values()) + sum(self.blobs.values())


class Backup(NamedTuple):
    """copied: bytes that an earlier backup did not have."""

    folder: Path
    at: datetime
    bytes: int
    copied: int


class _Gone(Exception):
    """A file was removed meanwhile, together with what named it."""


def back_up(
    vault: Path,
    target: Path,
    show: Show = lambda *_: None,
    sealing: Sealing = PLAIN_SEALING,
    payloads: Blobs | None = None,
) -> Backup:
    """Copy a vault that the caller has open, as it is at one moment, to a folder: a new one, or an earlier backup of
    the same vault, which stays until this one is whole. What an interrupted backup has copied is used.

    sealing: of an encrypted vault, which stays encrypted. payloads: of a vault that has them in a bucket; they lie in
    the folder of the backup, and of the vault that is made of it.

    Raises InputError for a target that is something else, CorruptBlob for a damaged payload, VaultError.
    """
    vault, target = vault.absolute(), target.absolute()
    part, old = (target.with_name(f"{target.name}.memos-{end}") for end in ("part", "old"))
    if target == vault or vault in target.parents or target in vault.parents:
        raise InputError(f"{target} and the vault {vault} lie in each other; name a folder outside of it")
    try:
        if old.exists() and not target.exists():
            old.rename(target)  # the exchange below was cut short
        remove(old)
        _require_replaceable(target, vault)
        copied = _Copy(vault, part, target, show, sealing, payloads).make()
        if target.exists():
            target.rename(old)
        part.rename(target)
        fsync(target.parent)
        remove(old)
    except OSError as error:
        raise VaultError(
            f"{target} was not written ({error}); what was there is kept, make sure that the disk has room, and run "
            "the same command again: it goes on from there"
        ) from error
    made = read(target)
    return Backup(target, datetime.fromisoformat(made.at), made.bytes, copied)


def read(folder: Path) -> Manifest:
    """What a backup says of itself. Raises InputError where there is none, CorruptBlob."""
    try:
        vault, schema, at, files, blobs = on_disk.read_json(folder / NAME)
    except FileNotFoundError:
        raise InputError(
            f"{folder} is no backup: there is no {NAME}; name a folder that `memos vault backup` made"
        ) from None
    return Manifest(vault, schema, at, {name: (size, recorded) for name, (size, recorded) in files.items()}, blobs)


def problems(folder: Path, show: Show = lambda *_: None, key: str | None = None) -> list[str]:
    """What is wrong with a backup, in words; reads every byte. key: where the key of an encrypted one is; None: where
    it was when the backup was made.

    Raises InputError where there is none, VaultError for one of a newer schema, WrongKey, KeyUnusable.
    """
    try:
        manifest = read(folder)
    except CorruptBlob as error:
        return [str(error)]
    require_known(folder, manifest.schema)
    found, named = list[str](), {NAME}
    for i, (name, path, size, recorded) in enumerate(_listed(folder, manifest)):
        show("files", i, len(manifest.files) + len(manifest.blobs))
        if path is None or not path.exists():
            found.append(f"{folder / name} is missing")
        elif digest(path, _hash_of(recorded)) != (recorded, size):
            found.append(f"{path} does not match its digest")
        named |= {part.relative_to(folder).as_posix() for part in (path, *path.rglob("*"))} if path else set()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in named:
            found.append(f"{path} is not of this backup; remove it")
    if not found and manifest.schema == SCHEMA_VERSION:  # was it sound when it was made?
        place = Place(folder, key)
        found += vault_check.of_content(folder, True, store_of(place).sealing(place), show)
    return found


def restore(
    backup: Path,
    target: Path,
    show: Show = lambda *_: None,
    forgotten: Path | None = None,
    governance: GovernanceConfig = GovernanceConfig(),
) -> Manifest:
    """Make a vault of a backup, in a new or empty folder, which appears when every digest was compared, and who was
    forgotten since, here too. forgotten: a vault or a backup that knows who that is; None: the vault that the backup is
    of, where it is still there.

    Raises InputError, CorruptBlob for a backup that is damaged, VaultError, Held.
    """
    backup, target = backup.absolute(), target.absolute()
    manifest = read(backup)
    require_known(backup, manifest.schema)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is not empty; name a new folder, and move it into place afterwards")
    part, ledger = target.with_name(f"{target.name}.memos-part"), _forgotten(manifest, forgotten)
    try:
        remove(part)
        part.mkdir(parents=True)
        done = 0
        for size in _at_once(partial(_bring_back, backup, part), _listed(backup, manifest)):
            show("bytes", done, manifest.bytes)
            done += size
        show("bytes", done, manifest.bytes)
        if ledger:
            with MemVault(part, governance=governance) as vault:
                forget_again(vault, ledger)
        file_sums.keep(part)
        _sync_folders(part)
        if target.exists():
            target.rmdir()
        part.rename(target)
        fsync(target.parent)
    except OSError as error:
        raise VaultError(
            f"{target} was not written ({error}); make sure that the disk has room, and try again"
        ) from error
    finally:
        with suppress(OSError):
            remove(part)
    return manifest


def forget_again(vault: MemVault, others: Iterable[Forgotten]) -> list[str]:
    """Forget in a copy of a vault what was forgotten in another; the ids of cubes that are gone. Raises Held."""
    here = vault.forgetting
    known = {entry.digest for entry in here.ledger()}  # forgotten here, and may have come back since
    ledger, cubes = [entry for entry in others if entry.digest not in known], [cube.id for cube in vault.cubes()]
    gone: dict[str, None] = {}
    with vault.transaction():
        for user, at in named(ledger, "user", here.users()).items():
            ids = here.concerned(user, at)
            here.forget(user, ids)
            gone |= dict.fromkeys(ids)
        left = [id for id in named(ledger, "cube", cubes) if id not in gone]
        left += [cube.id for cube in vault.derived(*left) if cube.id not in left]
        vault.delete(left)
        here.note(ledger)
    return [*gone, *left]


def _bring_back(backup: Path, to: Path, listed: tuple[str, Path | None, int, str]) -> int:
    """Its bytes. Raises CorruptBlob."""
    name, path, _, recorded = listed
    if path is None or not path.exists():
        raise CorruptBlob(f"{backup / name} is missing; see `memos vault check {backup}`, and take another backup")
    return _copy(path, to / name, recorded)[1]


def _forgotten(manifest: Manifest, named: Path | None) -> list[Forgotten]:
    """Raises VaultError for a place that was named and cannot be read."""
    place = named or Path(manifest.vault)
    try:
        driver = store_of(Place(place)).sealing(Place(place)).driver
        with VaultReader(place, alone=False, driver=driver) as reader:
            return entries(reader)
    except VaultError as error:
        if named is not None:
            raise
        log.warning("who was forgotten since this backup was made is not known (%s); see --forgotten", error)
        return []


def _listed(folder: Path, manifest: Manifest) -> Iterator[tuple[str, Path | None, int, str]]:
    """(name, where it lies, bytes, digest) of each file and payload."""
    for name, (size, recorded) in manifest.files.items():
        yield name, folder / name, size, recorded
    blobs = Blobs(folder, PlainFormat())
    for sha256, size in manifest.blobs.items():
        path = blobs.find(sha256)
        yield path.relative_to(folder).as_posix() if path else f"blobs/{sha256[:2]}/{sha256}", path, size, sha256


def _require_replaceable(target: Path, vault: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / NAME).is_file():
        raise InputError(f"{target} is there already, and is no backup; name a new folder")
    try:
        there = read(target)
    except CorruptBlob as error:
        raise InputError(f"{error}: this backup is damaged, and is left as it is; name a new folder") from error
    if there.vault != str(vault):
        raise InputError(f"{target} is a backup of {there.vault}, not of {vault}; name another folder")


class _Copy:
    """Of a vault, into a folder that may hold what an interrupted one has copied; taken from an earlier backup where
    that has it."""

    def __init__(
        self, vault: Path, part: Path, earlier: Path, show: Show, sealing: Sealing, payloads: Blobs | None
    ) -> None:
        self._vault, self._part, self._show, self._sealing = vault, part, show, sealing
        self._format, self._plain = sealing.format, sealing.unsealer is None
        self._to, self._earlier = Blobs(part, self._format), Blobs(earlier, self._format)
        self._from = payloads or Blobs(vault, self._format)
        self._taken: dict[str, int] = {}  # bytes copied of each payload that is there, and is what it was

    def make(self) -> int:
        """The bytes that were copied. Payloads take long, so most come before the rows, and only the rest after."""
        self._part.mkdir(parents=True, exist_ok=True)
        for name in (NAME, KEY, *self._sealing.key_files, *DATABASES.values()):
            remove(self._part / name)
        with VaultReader(self._vault, alone=False, driver=self._sealing.driver) as reader:
            payloads = [sha256 for (sha256,) in reader.rows(_PAYLOADS)]
        for _ in range(_TRIES):
            with suppress(_Gone):
                self._take(payloads)
                break
            payloads = [sha256 for sha256 in payloads if self._from.find(sha256)]
        for _ in range(_TRIES):
            with suppress(_Gone):
                return self._finish()
        raise VaultError(f"{self._vault} was not copied, as it changes all the time; try again when less is done there")

    def _finish(self) -> int:
        at = clock().isoformat()
        remove(self._part / "index")  # of a try before
        with ThreadPoolExecutor(_THREADS) as threads:
            with VaultReader(self._vault, alone=False, driver=self._sealing.driver) as reader:
                copies = {name: self._database(reader, schema, threads) for schema, name in DATABASES.items()}
                payloads = [sha256 for (sha256,) in reader.rows(_PAYLOADS)]
                indexes = [f"index/{name}" for (name,) in reader.rows("SELECT name FROM indexes")]
            files = {name: self._index(name) for name in indexes}
            for name in (KEY, *self._sealing.key_files):
                if (self._vault / name).exists():
                    files[name] = _copy(self._vault / name, self._part / name)
            self._take(payloads)
            wanted = {sha256: path for sha256 in payloads if (path := self._to.find(sha256))}
            for path in set((self._part / "blobs").glob("*/*")) - set(wanted.values()):
                remove(path)
            if not self._plain:
                names = [path.relative_to(self._part).as_posix() for path in wanted.values()]
                files |= zip(names, _at_once(_digest, wanted.values()), strict=True)
            files = {name: copy.result() for name, copy in copies.items()} | files
        blobs = {} if not self._plain else {sha256: _size(path) for sha256, path in wanted.items()}
        manifest = Manifest(
            str(self._vault),
            SCHEMA_VERSION,
            at,
            {name: (size, recorded) for name, (recorded, size) in files.items()},
            blobs,
        )
        on_disk.write_json(self._part / NAME, manifest)
        _sync_folders(self._part)
        others = sum(size for name, (_, size) in files.items() if not name.startswith("blobs/"))
        return others + sum(self._taken.values())

    def _database(self, reader: VaultReader, schema: str, threads: ThreadPoolExecutor) -> Future[tuple[str, int]]:
        """Its digest, once it is on disk."""
        path = self._part / DATABASES[schema]
        remove(path)
        reader.copy(schema, path, partial(self._show, path.name))
        if schema == "main" and beyond(reader):
            _without_buckets(path, self._sealing)
        synced = threads.submit(fsync, path)

        def settled() -> tuple[str, int]:
            found = _digest(path)
            synced.result()
            return found

        return threads.submit(settled)

    def _take(self, payloads: Sequence[str]) -> None:
        wanted = [sha256 for sha256 in payloads if sha256 not in self._taken]
        for i, _ in enumerate(_at_once(self._payload, wanted)):
            self._show("payloads", i, len(wanted))
        self._show("payloads", len(wanted), len(wanted))

    def _payload(self, sha256: str) -> None:
        self._taken[sha256] = 0 if self._has(sha256) else self._fetched(sha256)

    def _fetched(self, sha256: str) -> int:
        """Its bytes."""
        path = self._from.find(sha256)
        try:
            if path is None:
                raise FileNotFoundError
            return self._fetched_from(path, sha256)
        except FileNotFoundError:
            with VaultReader(self._vault, alone=False, driver=self._sealing.driver) as reader:
                if any(sha256 == still for (still,) in reader.rows(_PAYLOADS)):
                    raise CorruptBlob(
                        f"payload {sha256} is missing from {self._vault}; see `memos vault check`, which names the "
                        "cubes to promote again, or bring back an earlier backup"
                    ) from None
            raise _Gone from None

    def _fetched_from(self, path: Path, sha256: str) -> int:
        target = self._part / "blobs" / path.parent.name / path.name
        if self._plain:
            return _copy(path, target, sha256)[1]
        _, size = _copy(path, target)
        if self._format.problem(target, sha256):
            remove(target)
            raise _damaged(path)
        return size

    def _has(self, sha256: str) -> bool:
        there = self._to.find(sha256)
        if there:
            if not self._format.problem(there, sha256):
                fsync_all(there)  # it was cut off after the last byte, maybe
                return True
            remove(there)  # cut off as it was written
        before = self._earlier.find(sha256)
        if before is None or self._format.problem(before, sha256):
            return False
        place = self._part / "blobs" / before.parent.name / before.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if before.is_dir():
            shutil.copytree(before, place, copy_function=os.link)
        else:
            os.link(before, place)
        return True

    def _index(self, name: str) -> tuple[str, int]:
        try:
            return _copy(self._vault / name, self._part / name)
        except FileNotFoundError:
            raise _Gone from None  # a newer one has come


def _without_buckets(database: Path, sealing: Sealing) -> None:
    """The copy of a database says no more that payloads lie elsewhere than beside it."""
    with closing(sealing.driver.connect(database, database.name, isolation_level=None)) as copy:
        for table in (SHELF_OBJECTS, SHELF_PLACES):
            copy.execute(f"DELETE FROM {table}")


def _at_once(act: Callable[[Value], Result], values: Iterable[Value]) -> Iterator[Result]:
    """What each gives, in their order. After an error none begins, and those that had begun have ended."""
    with ThreadPoolExecutor(_THREADS) as threads:
        yield from threads.map(act, values)


def _hash_of(recorded: str) -> Callable[[], Any]:
    """What made a digest of a manifest. Payloads go by sha256, and so did the files of the first backups; xxh3 finds
    damage as well, in a tenth of the time."""
    return hashlib.sha256 if len(recorded) == 64 else xxhash.xxh3_128


def _digest(path: Path) -> tuple[str, int]:
    """Of a file that is no payload, and bytes."""
    return digest(path, xxhash.xxh3_128)


def _copy(path: Path, target: Path, recorded: str = "") -> tuple[str, int]:
    """Copy a file or a folder, on disk when this returns; its digest and bytes. Raises CorruptBlob where another
    digest was recorded."""
    if path.is_dir():
        names = [part.relative_to(path).as_posix() for part in path.rglob("*") if part.is_file()]
        found, size = digest_of({name: _copy_file(path / name, target / name, hashlib.sha256) for name in names})
    else:
        found, size = _copy_file(path, target, _hash_of(recorded))
    if recorded not in ("", found):
        remove(target)
        raise _damaged(path)
    return found, size


def _copy_file(path: Path, target: Path, new: Callable[[], Any]) -> tuple[str, int]:
    target.parent.mkdir(parents=True, exist_ok=True)
    seen, size, room = new(), 0, memoryview(bytearray(_PIECE))
    mode = path.stat().st_mode & 0o777  # of a key: for its owner alone
    with path.open("rb", buffering=0) as source, open(target, "wb", opener=partial(os.open, mode=mode)) as copy:
        while got := source.readinto(room):
            seen.update(room[:got])
            copy.write(room[:got])  # all of it, or an error: a full disk takes a part
            size += got
        copy.flush()
        os.fsync(copy.fileno())
    return seen.hexdigest(), size


def _damaged(path: Path) -> CorruptBlob:
    return CorruptBlob(f"{path} does not match its digest; see `memos vault check`, or bring back an earlier backup")


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _sync_folders(folder: Path) -> None:
    list(_at_once(fsync, [path for path in (folder, *folder.rglob("*")) if path.is_dir()]))
