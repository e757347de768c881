"""Checksums of all files of a closed vault, which find damage where no row with a checksum lies.

    sums.json   its own checksum, and then those of each MiB of each file; there only while nobody has the vault open

Payloads and kept indexes have digests elsewhere. Must not know what is in a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash

from memos.errors import CorruptBlob
from memos.infrastructure.vault.store import on_disk
from memos.infrastructure.vault.store.on_disk import fsync

log = logging.getLogger("memos")
NAME = "sums.json"
ELSEWHERE = ("blobs", "index", "tmp")  # folders that are checked by other means, or of no matter
EXTENT = 1 << 20  # bytes
_SETTLED_NS = 2_000_000_000  # a file written later than this before its sum could be written again at the same time


class FileSum(NamedTuple):
    """written: when, in ns, or 0 where that is too close to tell a later write by it. sums: of each MiB."""

    size: int
    written: int
    sums: tuple[str, ...]


Sums = dict[str, FileSum]


def keep(folder: Path, before: Sums | None = None) -> None:
    """Sum up all files, on disk when this returns. Nothing is kept where that fails, as on a full disk.

    before: what was kept last; a file that was not written since is not read again.
    """
    try:
        now, found = time.time_ns(), Sums()
        for name, path in files_of(folder):
            there, was = path.stat(), (before or {}).get(name)
            if was is None or (was.size, was.written) != (there.st_size, there.st_mtime_ns):
                settled = there.st_mtime_ns if there.st_mtime_ns < now - _SETTLED_NS else 0
                was = FileSum(there.st_size, settled, tuple(sums_of(path)))
            found[name] = was
        on_disk.write_json(folder / NAME, found)
    except OSError as error:
        log.warning(
            "%s was not written (%s); damage is found by content alone until the next close", folder / NAME, error
        )


def take(folder: Path) -> Sums | None:
    """What was kept, and no longer is: the files are about to be written to. None for nothing, or a damaged file."""
    try:
        found = read(folder)
    except CorruptBlob as error:
        log.warning("%s", error)
        found = None
    (folder / NAME).unlink(missing_ok=True)
    fsync(folder)  # it must not come back when the power fails
    return found


def read(folder: Path) -> Sums | None:
    """What is kept, or None where nothing is. Raises CorruptBlob for a file that is damaged itself."""
    try:
        found = on_disk.read_json(folder / NAME)
    except FileNotFoundError:
        return None
    return {name: FileSum(size, written, tuple(sums)) for name, (size, written, sums) in found.items()}


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Those that are summed up, with their names."""
    aside = {NAME, f"{NAME}.part", "lock"}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        scratch = name.name.endswith(("-wal", "-shm"))
        if path.is_file() and str(name) not in aside and name.parts[0] not in ELSEWHERE and not scratch:
            yield name.as_posix(), path


def sums_of(path: Path) -> Iterator[str]:
    with path.open("rb", buffering=0) as file:
        while extent := file.read(EXTENT):
            yield xxhash.xxh3_128_hexdigest(extent)
