"""Stores payloads as files named by their sha256, written whole; must not know what a cube is for.

blobs/ab/ab….safetensors   a file; blobs/ab/ab…/ is a folder (a PEFT adapter)
tmp/                       payloads being written
work/<job>/                what an interrupted job can be taken up from
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from memos.cube import Blob, new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import DIGEST, SUFFIX, FileFormat, Files, digest, remove
from memos.infrastructure.vault.store.on_disk import fsync
from memos.infrastructure.vault.store.transactions import Rows, Store


class ReadableShelf(Protocol):
    """Where payloads lie, if not in the folder: then that has copies of some, for this machine alone."""

    def has(self, name: str) -> bool: ...

    def names(self) -> list[str]: ...

    def fetch(self, name: str, target: Path, suffix: str) -> Path | None: ...

    def used(self, path: Path) -> Path:
        """A copy that is about to be read."""

    def digest(self, name: str) -> str: ...


class Shelf(ReadableShelf, Protocol):
    """What is brought, and then put in a transaction, is kept; what is dropped in one is gone after its commit."""

    def bring(self, name: str, path: Path, suffix: str) -> None:
        """What takes long of `put`, before its transaction. suffix: that it will have. Raises VaultError."""

    def put(self, name: str, path: Path) -> None: ...

    def drop(self, name: str) -> None: ...

    def give_up(self) -> None:
        """With nobody else writing: what was brought and never put is dropped."""

    def settle(self, thorough: bool = False) -> None:
        """Outside of a transaction: erase what was dropped; thorough: and what nothing names. Raises VaultError."""


class Blobs:
    """Where payloads lie, and whether they are what they were; writes nothing but copies of what is on a shelf."""

    def __init__(
        self,
        folder: Path,
        format: FileFormat,
        referrers: Callable[[str], Sequence[str]] = lambda _: (),
        shelf: ReadableShelf | None = None,
    ) -> None:
        """folder: of a vault, or of a backup. referrers: the ids of the cubes that refer to a blob."""
        self._folder, self._format, self._referrers, self._shelf = folder, format, referrers, shelf

    def find(self, sha256: str) -> Path | None:
        """Raises VaultError where it cannot be copied from the shelf."""
        path = self.here(sha256)
        if self._shelf is None or not DIGEST.fullmatch(sha256):
            return path
        if not self._shelf.has(sha256):
            return None
        return self._shelf.used(path) if path else self._fetched(sha256)

    def _fetched(self, sha256: str) -> Path | None:
        assert self._shelf
        return self._shelf.fetch(sha256, self._home(sha256) / self._format.name(sha256), SUFFIX)

    def has(self, sha256: str) -> bool:
        """Here or on the shelf, from which nothing is copied."""
        if self._shelf is None or not DIGEST.fullmatch(sha256):
            return self.here(sha256) is not None
        return self._shelf.has(sha256)

    def here(self, sha256: str) -> Path | None:
        """In the folder."""
        if not DIGEST.fullmatch(sha256):  # an imported "../.." must not lead out of the vault
            return None
        name, home = self._format.name(sha256), self._home(sha256)
        return next((path for path in (home / (name + SUFFIX), home / name) if path.exists()), None)

    def _home(self, sha256: str) -> Path:
        return self._folder / "blobs" / self._format.name(sha256)[:2]

    def all(self) -> list[str]:
        """The digests of the payloads that are there, whether a cube refers to them or not."""
        names = {path.name.removesuffix(SUFFIX) for path in (self._folder / "blobs").glob("*/*")}
        found = set(filter(None, map(self._format.sha256, names)))
        return sorted(found.union(filter(DIGEST.fullmatch, self._shelf.names() if self._shelf else ())))

    def problem(self, sha256: str) -> str:
        """What is wrong with a blob and how to repair it, or ""; reads all of it."""
        if self._shelf is not None:
            path = Path(sha256) if (found := self._shelf.digest(sha256)) else None
            if found == sha256:
                return ""
        else:
            path = self.find(sha256)
            try:
                if path is not None and not self._format.problem(path, sha256):
                    return ""
            except FileNotFoundError:  # removed while it was read
                path = None
        missing = f"blob {sha256} is missing from {self._folder / 'blobs'}"
        what = f"{path} does not match its digest" if path else missing
        ids = ", ".join(self._referrers(sha256))
        whose = f"cube {ids} cannot be used" if ids else "no cube refers to it"
        return f"{what}; {whose}: remove it with `MemOS.delete`, and promote its sources again with `MemOS.promote`"


class BlobStore(Blobs):
    """The payloads of an open vault: staged, stored, read and discarded."""

    def __init__(
        self,
        folder: Path,
        files: Files,
        db: Store,
        require_room: Callable[[int, int], None],
        shelf: Shelf | None = None,
    ) -> None:
        """require_room: for so many bytes, and so many of payloads; raises QuotaExceeded."""
        super().__init__(folder, files.format, partial(referrers, db), shelf)
        self.shelf = shelf
        self._files, self._db, self._require_room = files, db, require_room
        self._lock = threading.Lock()
        self._staged: set[Path] = set()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A path where nothing is yet, for a file or a folder; what is left there afterwards is removed.

        Keep the block open until the cube is put: meanwhile `sweep` leaves its payload alone.
        """
        path = self._files.staged / new_id()
        with self._lock:
            with _named(path):
                path.parent.mkdir(exist_ok=True)
            self._staged.add(path)
        try:
            yield path
        finally:
            remove(path)
            with self._lock:
                self._staged.discard(path)

    def store(self, path: Path) -> tuple[str, int]:
        """Move a staged file or folder to its place; its sha256 and bytes. A damaged payload of that name is replaced.

        Raises QuotaExceeded, VaultError.
        """
        with _named(path):
            sha256, size = digest(path)
            suffix = "" if path.is_dir() else SUFFIX
            sealed = self._files.keep(path, sha256)
        if self.shelf is not None:
            self._require_room_for(sha256, size)
            self.shelf.bring(sha256, sealed, suffix)
        with self._db.transaction(), _named(sealed):  # as removing a payload is, in this process or another
            self._require_room_for(sha256, size)
            target = place(sealed, self._home(sha256), sha256, suffix, self._format)
            if self.shelf is not None:
                self.shelf.put(sha256, target)
        return sha256, size

    def _require_room_for(self, sha256: str, size: int) -> None:
        if not self.has(sha256):
            self._require_room(size, size)

    def path(self, blob: Blob, verified: bool = True) -> Path:
        """Where the payload can be read, after its digest was verified. Raises CorruptBlob.

        verified: False for a reader that verifies a checksum of its own; then only a missing file is told.
        """
        return self.file(blob.sha256) if verified else self._files.lend(self.stored(blob), blob.sha256)

    def file(self, sha256: str) -> Path:
        """Where a file that somebody gave can be read, after its digest was verified; to be opened at once. Raises
        CorruptBlob."""
        return self._files.lend(self.sound(sha256), sha256)

    def sound(self, sha256: str) -> Path:
        """Where a payload lies on disk, maybe encrypted, after its digest was verified. Raises CorruptBlob."""
        path = self.find(sha256)
        if self._shelf is not None and path is not None:
            if self._format.problem(path, sha256):  # a copy, maybe, of which another is to be had
                path = self._fetched(sha256) or path
            if not self._format.problem(path, sha256):
                return path
        problem = self.problem(sha256)
        if path is None or problem:
            raise CorruptBlob(problem)
        return path

    def stored(self, blob: Blob) -> Path:
        """Where the payload lies on disk, maybe encrypted. Raises CorruptBlob if nowhere."""
        path = self.find(blob.sha256)
        if path is None:
            raise CorruptBlob(self.problem(blob.sha256))
        return path

    def local(self, blob: Blob) -> Path | None:
        """Where the payload lies on this machine; None where it is to be copied first. Raises CorruptBlob."""
        return self.here(blob.sha256) if self.shelf else self.stored(blob)

    def forget_lent(self, blob: Blob) -> None:
        """What an encrypted vault keeps of a payload in memory goes; the next reader decrypts it again."""
        self._files.forget(blob.sha256)

    def discard(self, sha256: str) -> None:
        """Remove a payload, unless a cube refers to it."""
        with self._db.transaction():  # as `put` does: what another process is about to name is not taken from under it
            if self._referrers(sha256):
                return
            if self.shelf is not None:
                self.shelf.drop(sha256)
            if path := self.here(sha256):
                self._files.forget(sha256)
                remove(path)

    def drop_copies(self) -> None:
        """Remove the copies of what is no longer on the shelf, as another machine has deleted it. With nobody else
        writing."""
        if self._shelf is not None:
            for sha256 in sorted({*self.all()} - {*self._shelf.names()}):
                self.discard(sha256)

    def sweep(self) -> list[str]:
        """Remove all of tmp/ and the blobs without referrers, unless a payload is being staged; the names removed. With
        nobody else writing."""
        with self._lock:
            if self._staged:
                return []
            orphans = list((self._folder / "tmp").glob("*"))
            orphans += (self._folder / "blobs").glob("*/.*.part")  # copies that were cut off
            unused = [sha256 for sha256 in self.all() if not self._referrers(sha256)]
            orphans += [path for sha256 in unused if (path := self.here(sha256))]
            if self.shelf is not None:
                for sha256 in unused:
                    self.shelf.drop(sha256)
                self.shelf.give_up()
            for path in orphans:
                remove(path)
        return sorted(str(path.relative_to(self._folder)) for path in orphans)

    def settle(self, thorough: bool = False) -> None:
        """Outside of a transaction: what was discarded leaves the shelf; thorough: as does what nothing there names.
        Raises VaultError."""
        if self.shelf is not None:
            self.shelf.settle(thorough)

    def work(self, job: str) -> Path:
        """A folder for what a job can be taken up from; it goes when the job ends or a source of it changes."""
        return self._files.work(job)


def referrers(db: Rows, sha256: str) -> list[str]:
    """The ids of the cubes that refer to a payload."""
    sql = "SELECT DISTINCT id FROM versions WHERE json_extract(json, '$.payload.sha256') = ? ORDER BY id"
    return [id for (id,) in db.rows(sql, sha256)]


def place(sealed: Path, home: Path, sha256: str, suffix: str, format: FileFormat) -> Path:
    """Move a payload that is on disk to its place, unless the very same is there; that place. Raises OSError."""
    target = home / (format.name(sha256) + suffix)
    home.mkdir(parents=True, exist_ok=True)
    if target.is_dir():  # a rename replaces a file, but no folder
        if not format.problem(target, sha256):
            return target
        shutil.rmtree(target)
    sealed.rename(target)
    for folder in (home, home.parent, home.parent.parent):
        fsync(folder)
    return target


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of the system as one that says what, and the way out."""
    try:
        yield
    except OSError as error:
        raise VaultError(
            f"{path} was not kept ({error.strerror}); nothing else was changed, make sure that the disk has room and "
            "the folder can be written to, and try again"
        ) from error
