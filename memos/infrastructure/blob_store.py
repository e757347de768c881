"""Payloads as files, each named by its sha256. Knows how a file lands whole; must not know what a cube is.

blobs/ab/ab….safetensors   a file; blobs/ab/ab…/ is a folder (a PEFT adapter)
tmp/                       payloads being written
work/<job>/                what an interrupted job can be taken up from
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memos.cube import new_id
from memos.errors import CorruptBlob

_DIGEST = re.compile("[0-9a-f]{64}")


class BlobStore:
    """The caller sees to it that `place`, `drop` and `sweep` exclude each other, in other processes too."""

    def __init__(self, folder: Path, referrers: Callable[[str], Sequence[str]]) -> None:
        """`referrers`: the ids of the cubes that refer to a blob."""
        self._folder, self._referrers = folder, referrers
        self._lock = threading.Lock()
        self._staged: set[Path] = set()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A path under tmp/ where nothing is yet; what is left there afterwards is removed."""
        path = self._folder / "tmp" / new_id()
        with self._lock:
            path.parent.mkdir(exist_ok=True)
            self._staged.add(path)
        try:
            yield path
        finally:
            _remove(path)
            with self._lock:
                self._staged.discard(path)

    def work(self, job: str) -> Path:
        """The folder of a job, made if absent."""
        path = self._folder / "work" / job
        path.mkdir(parents=True, exist_ok=True)
        return path

    def has_work(self, job: str = "") -> bool:
        """Of a job, or of any."""
        return any((self._folder / "work" / job).glob("*"))

    def clear_work(self, keep: Iterable[str]) -> None:
        """Remove the folders of all other jobs."""
        kept = set(keep)
        for path in (self._folder / "work").glob("*"):
            if path.name not in kept:
                _remove(path)

    def seal(self, path: Path) -> tuple[str, int]:
        """Digest of a staged file or folder, which is on disk when this returns; its sha256 and bytes."""
        found = digest(path)
        for part in [*path.rglob("*"), path]:
            _fsync(part)
        return found

    def place(self, path: Path, sha256: str) -> None:
        """Move what was sealed to where `find` looks. A damaged blob of that name is replaced."""
        home = self._folder / "blobs" / sha256[:2]
        target = home / (sha256 if path.is_dir() else f"{sha256}.safetensors")
        home.mkdir(parents=True, exist_ok=True)
        if target.is_dir():  # a rename replaces a file, but no folder
            if digest(target)[0] == sha256:
                return
            shutil.rmtree(target)
        path.rename(target)
        for folder in (home, home.parent, self._folder):
            _fsync(folder)

    def find(self, sha256: str) -> Path | None:
        if not _DIGEST.fullmatch(sha256):  # an imported "../.." must not lead out of the vault
            return None
        home = self._folder / "blobs" / sha256[:2]
        return next((path for path in (home / f"{sha256}.safetensors", home / sha256) if path.exists()), None)

    def verified(self, sha256: str) -> Path:
        """Where the blob lies, after its digest was compared. Raises CorruptBlob."""
        path, problem = self.find(sha256), self.problem(sha256)
        if path is None or problem:
            raise CorruptBlob(problem)
        return path

    def there(self, sha256: str) -> Path:
        """Where the blob lies. Raises CorruptBlob if nowhere."""
        path = self.find(sha256)
        if path is None:
            raise CorruptBlob(self.problem(sha256))
        return path

    def problem(self, sha256: str) -> str:
        """What is wrong with a blob and how to repair it, or ""; reads all of it."""
        path = self.find(sha256)
        if path is not None and digest(path)[0] == sha256:
            return ""
        what = (
            f"{path} does not match its digest" if path else f"blob {sha256} is missing from {self._folder / 'blobs'}"
        )
        ids = ", ".join(self._referrers(sha256))
        whose = f"cube {ids} cannot be used" if ids else "no cube refers to it"
        return f"{what}; {whose}: remove it with `MemOS.delete`, and promote its sources again with `MemOS.promote`"

    def drop(self, sha256: str) -> None:
        """Remove a blob, unless a cube refers to it."""
        path = self.find(sha256)
        if path is not None and not self._referrers(sha256):
            _remove(path)

    def sweep(self) -> list[str]:
        """Remove all of tmp/ and the blobs without referrers, unless a payload is being staged; the names removed."""
        with self._lock:
            if self._staged:
                return []
            orphans = list((self._folder / "tmp").glob("*"))
            for path in (self._folder / "blobs").glob("*/*"):
                name = path.name.removesuffix(".safetensors")
                if _DIGEST.fullmatch(name) and not self._referrers(name):
                    orphans.append(path)
            for path in orphans:
                _remove(path)
        return sorted(str(path.relative_to(self._folder)) for path in orphans)


def digest(path: Path) -> tuple[str, int]:
    """sha256 and bytes of a file, or of a folder: then over its sorted `name NUL sha256(file)` lines."""
    if not path.is_dir():
        sha256 = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):  # a payload may be larger than memory
                sha256.update(chunk)
        return sha256.hexdigest(), path.stat().st_size
    parts = {file.relative_to(path).as_posix(): digest(file) for file in path.rglob("*") if file.is_file()}
    lines = "".join(f"{name}\0{sha256}\n" for name, (sha256, _) in sorted(parts.items()))
    return hashlib.sha256(lines.encode()).hexdigest(), sum(size for _, size in parts.values())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
