"""Stores payloads as files named by their sha256, written whole; must not know what a cube is.

blobs/ab/ab….safetensors   a file; blobs/ab/ab…/ is a folder (a PEFT adapter)
tmp/                       payloads being written
work/<job>/                what an interrupted job can be taken up from
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memos.cube import new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import DIGEST, SUFFIX, FileFormat, Files, digest, remove
from memos.infrastructure.vault.store.on_disk import fsync


@dataclass(frozen=True)
class Ready:
    """A payload on disk, to be moved to its place. suffix: of its place."""

    stored: Path
    sha256: str
    size: int
    suffix: str


class Shelf(Protocol):
    """Where payloads lie, if not in the folder: then that has copies of some, for this machine alone."""

    def has(self, name: str) -> bool: ...

    def names(self) -> list[str]: ...

    def put(self, name: str, path: Path) -> None: ...

    def fetch(self, name: str, target: Path, suffix: str) -> Path | None: ...

    def digest(self, name: str) -> str: ...

    def drop(self, name: str) -> None: ...


class Blobs:
    """Where payloads lie, and whether they are what they were; writes nothing but copies of what is on a shelf."""

    def __init__(
        self,
        folder: Path,
        format: FileFormat,
        referrers: Callable[[str], Sequence[str]] = lambda _: (),
        shelf: Shelf | None = None,
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
        return path or self._shelf.fetch(sha256, self._home(sha256) / sha256, SUFFIX)

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
            if path is not None and not self._format.problem(path, sha256):
                return ""
        what = (
            f"{path} does not match its digest" if path else f"blob {sha256} is missing from {self._folder / 'blobs'}"
        )
        ids = ", ".join(self._referrers(sha256))
        whose = f"cube {ids} cannot be used" if ids else "no cube refers to it"
        return f"{what}; {whose}: remove it with `MemOS.delete`, and promote its sources again with `MemOS.promote`"


class BlobStore:
    """The caller sees to it that `place`, `drop` and `sweep` exclude each other, in other processes too."""

    def __init__(
        self, folder: Path, files: Files, referrers: Callable[[str], Sequence[str]], shelf: Shelf | None = None
    ) -> None:
        """`referrers`: the ids of the cubes that refer to a blob."""
        self._folder, self._files, self._referrers, self._shelf = folder, files, referrers, shelf
        self._format = files.format
        self._blobs = Blobs(folder, files.format, referrers, shelf)
        self._lock = threading.Lock()
        self._staged: set[Path] = set()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A path where nothing is yet; what is left there afterwards is removed."""
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

    def work(self, job: str) -> Path:
        """The folder of a job, made if absent."""
        return self._files.work(job)

    def has_work(self, job: str = "") -> bool:
        """Of a job, or of any."""
        return self._files.has_work(job)

    def clear_work(self, keep: Iterable[str]) -> None:
        """Remove the folders of all other jobs."""
        self._files.clear_work(set(keep))

    def seal(self, path: Path) -> Ready:
        """Bring a staged file or folder to disk, with its digest. Raises VaultError."""
        with _named(path):
            suffix = "" if path.is_dir() else SUFFIX
            sha256, size = digest(path)
            return Ready(self._files.keep(path, sha256), sha256, size, suffix)

    def place(self, ready: Ready) -> None:
        """Move what was sealed to where `find` looks. A damaged blob of that name is replaced. Raises VaultError."""
        with _named(ready.stored):
            target = self._place(ready)
            if self._shelf is not None and self._shelf.digest(ready.sha256) != ready.sha256:
                self._shelf.put(ready.sha256, target)

    def _place(self, ready: Ready) -> Path:
        name = self._format.name(ready.sha256)
        home = self._folder / "blobs" / name[:2]
        target = home / (name + ready.suffix)
        home.mkdir(parents=True, exist_ok=True)
        if target.is_dir():  # a rename replaces a file, but no folder
            if not self._format.problem(target, ready.sha256):
                return target
            shutil.rmtree(target)
        ready.stored.rename(target)
        for folder in (home, home.parent, self._folder):
            fsync(folder)
        return target

    def find(self, sha256: str) -> Path | None:
        """Where the blob lies on disk, maybe sealed; None if nowhere."""
        return self._blobs.find(sha256)

    def problem(self, sha256: str) -> str:
        """What is wrong with a blob and how to repair it, or ""; reads all of it."""
        return self._blobs.problem(sha256)

    def verified(self, sha256: str) -> Path:
        """Where the blob can be read, after its digest was compared. Raises CorruptBlob."""
        path = self.find(sha256)
        if self._shelf is not None and path is not None:
            if self._format.problem(path, sha256):  # a copy, of which another is to be had
                remove(path)
                path = self.find(sha256)
            if path is not None and not self._format.problem(path, sha256):
                return path
        problem = self.problem(sha256)
        if path is None or problem:
            raise CorruptBlob(problem)
        return self._files.lend(path, sha256)

    def there(self, sha256: str) -> Path:
        """Where the blob can be read. Raises CorruptBlob if nowhere."""
        return self._files.lend(self.stored(sha256), sha256)

    def stored(self, sha256: str) -> Path:
        """Where the blob lies on disk, maybe sealed. Raises CorruptBlob if nowhere."""
        path = self.find(sha256)
        if path is None:
            raise CorruptBlob(self.problem(sha256))
        return path

    def drop(self, sha256: str) -> None:
        """Remove a blob, unless a cube refers to it."""
        if self._referrers(sha256):
            return
        if self._shelf is not None:
            self._shelf.drop(sha256)
        if path := self._blobs.here(sha256):
            self._files.forget(sha256)
            remove(path)

    def drop_copies(self) -> None:
        """Remove the copies of what is no longer on the shelf, as another machine has deleted it."""
        there = set(self._shelf.names()) if self._shelf else set()
        for sha256 in self._blobs.all() if self._shelf else ():
            if sha256 not in there:
                self.drop(sha256)

    def sweep(self) -> list[str]:
        """Remove all of tmp/ and the blobs without referrers, unless a payload is being staged; the names removed."""
        with self._lock:
            if self._staged:
                return []
            orphans = list((self._folder / "tmp").glob("*"))
            orphans += (self._folder / "blobs").glob("*/.*.part")  # copies that were cut off
            unused = [sha256 for sha256 in self._blobs.all() if not self._referrers(sha256)]
            orphans += [path for sha256 in unused if (path := self._blobs.here(sha256))]
            if self._shelf is not None:
                for sha256 in unused:
                    self._shelf.drop(sha256)
            for path in orphans:
                remove(path)
        return sorted(str(path.relative_to(self._folder)) for path in orphans)


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
