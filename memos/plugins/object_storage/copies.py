"""Keeps the copies of payloads on this machine within a budget: the least recently used go, where a bucket has them.

Knows files and when they were used, which is their time of access; must not know a bucket.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from memos.infrastructure.vault.blobs.vault_files import SUFFIX, FileFormat, remove

# for so long after its last use whoever was told its path may be about to open it: a file (KV) is opened at once, of a
# folder (an adapter), which is small, one file after the other, and by a training that may have to wait for its turn
LEASE_S, FOLDER_LEASE_S = 60.0, 3600.0


class Copies:
    def __init__(self, folder: Path, format: FileFormat, budget: int, elsewhere: Callable[[], Iterable[str]]) -> None:
        """folder: of the vault. budget: bytes. elsewhere: the payloads of which another copy is to be had."""
        self._folder, self._format, self._budget, self._elsewhere = folder / "blobs", format, budget, elsewhere

    def used(self, path: Path) -> Path:
        """Whoever is told this path may open it now."""
        with suppress(OSError):  # it went meanwhile, which its reader will find
            for file in _files(path):
                os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))
        return path

    def make_room(self, more: int) -> None:
        """For so many bytes. What is in use stays: the budget may be passed, and no reader is failed by it."""
        self._evict(self._budget - more)

    def clear(self) -> None:
        """As the disk itself is full."""
        self._evict(-math.inf)

    def _evict(self, most: float) -> None:
        copies = sorted(self._all())
        over = sum(size for _, size, _ in copies) - most
        if over <= 0:
            return
        elsewhere = set(self._elsewhere())
        for used, size, path in copies:
            lease = FOLDER_LEASE_S if path.is_dir() else LEASE_S
            if over <= 0:
                break
            if time.time() - used > lease and self._format.sha256(path.name.removesuffix(SUFFIX)) in elsewhere:
                remove(path)
                over -= size

    def _all(self) -> Iterable[tuple[float, int, Path]]:
        """When each was used, and its bytes."""
        for path in self._folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process makes room, too
                known = [file.stat() for file in _files(path)]
                yield max((file.st_atime for file in known), default=0.0), sum(file.st_size for file in known), path


def _files(path: Path) -> list[Path]:
    """Of a payload; the time of a folder's own access is no use of it, since to look for its files changes it."""
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
