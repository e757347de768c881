"""Reads and writes the files beside the rows of a vault, as they are; a plug-in may seal them.

Readers and writers of payloads work on paths, in the clear. `lend` and `staged` are where those lie.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any, Protocol

from memos.infrastructure.vault.store.on_disk import fsync_all

SUFFIX = ".safetensors"  # of a payload that is a file; one that is a folder has none
DIGEST = re.compile("[0-9a-f]{64}")  # a sha256, as it is written


class FileFormat(Protocol):
    """How a payload, or an index, is written to a file: as it is, or sealed. Paths of such files are named `stored`."""

    def name(self, sha256: str) -> str:
        """Of the file or folder that a payload is stored in, without its suffix."""

    def sha256(self, name: str) -> str:
        """The other way round; "" for what is no such name."""

    def problem(self, stored: Path, sha256: str) -> bool:
        """True if a payload is not what it was; reads all of it."""

    def reading(self, stored: Path, what: str) -> RawIOBase:
        """Read a file that was written piece by piece. Raises OSError, CorruptBlob."""

    def writing(self, stored: Path, what: str) -> AbstractContextManager[Callable[[bytes], object]]:
        """Write a file piece by piece; it is on disk when the block ends."""


class Files(Protocol):
    """What lies beside the rows of an open vault. Paths named `path` are of payloads in the clear."""

    format: FileFormat

    @property
    def staged(self) -> Path:
        """Where payloads are written before they are stored; not made yet."""

    @property
    def beside(self) -> tuple[Path, ...]:
        """Folders elsewhere in which something of the vault lies, too."""

    def work(self, job: str) -> Path:
        """The folder of what a job can be taken up from, made if absent."""

    def keep(self, path: Path, sha256: str) -> Path:
        """Bring a payload to disk, sealed if need be; where it then lies under tmp/. Raises OSError, VaultError."""

    def lend(self, stored: Path, sha256: str) -> Path:
        """Where a payload can be read; a file must be opened at once. Raises CorruptBlob, VaultError."""

    def forget(self, sha256: str) -> None:
        """A payload is deleted: what was lent of it goes, too."""

    def has_work(self, job: str = "") -> bool:
        """Of a job, or of any."""

    def clear_work(self, keep: set[str]) -> None:
        """Remove what belongs to all other jobs."""

    def close(self, alone: bool) -> None:
        """alone: nobody else has the vault open, and nobody can open it meanwhile."""


class PlainFormat:
    """Files as they are."""

    def name(self, sha256: str) -> str:
        return sha256

    def sha256(self, name: str) -> str:
        return name if DIGEST.fullmatch(name) else ""

    def problem(self, stored: Path, sha256: str) -> bool:
        return digest(stored)[0] != sha256

    def reading(self, stored: Path, what: str) -> RawIOBase:
        return stored.open("rb", buffering=0)

    @contextmanager
    def writing(self, stored: Path, what: str) -> Iterator[Callable[[bytes], object]]:
        with stored.open("wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())


class PlainFiles:
    """As they are. Nothing is lent: a payload is read where it is stored."""

    def __init__(self, folder: Path) -> None:
        """folder: of the vault."""
        self.staged, self._work = folder / "tmp", folder / "work"
        self.format: FileFormat = PlainFormat()
        self.beside: tuple[Path, ...] = ()

    def work(self, job: str) -> Path:
        return made(self._work / job)

    def keep(self, path: Path, sha256: str) -> Path:
        fsync_all(path)
        return path

    def lend(self, stored: Path, sha256: str) -> Path:
        return stored

    def forget(self, sha256: str) -> None: ...

    def has_work(self, job: str = "") -> bool:
        return any((self._work / job).glob("*"))

    def clear_work(self, keep: set[str]) -> None:
        remove_others(self._work, keep)

    def close(self, alone: bool) -> None: ...


def digest(path: Path, new: Callable[[], Any] = hashlib.sha256) -> tuple[str, int]:
    """sha256 and bytes of a file, or of a folder: then over its sorted `name NUL sha256(file)` lines. new: of a file,
    another hash."""
    if not path.is_dir():
        seen = new()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):  # a payload may be larger than memory
                seen.update(chunk)
        return seen.hexdigest(), path.stat().st_size
    return digest_of({file.relative_to(path).as_posix(): digest(file) for file in path.rglob("*") if file.is_file()})


def digest_of(parts: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """The same of a folder, by (sha256, bytes) of each file in it."""
    lines = "".join(f"{name}\0{sha256}\n" for name, (sha256, _) in sorted(parts.items()))
    return hashlib.sha256(lines.encode()).hexdigest(), sum(size for _, size in parts.values())


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_others(folder: Path, keep: set[str]) -> None:
    for path in folder.glob("*"):
        if path.name not in keep:
            remove(path)
