"""Writes files and names that are on disk, whole, when a call returns; must not know what they are for."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from memos.errors import CorruptBlob


def fsync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def fsync_all(path: Path) -> None:
    """The same of a file, or of a folder and all that is in it. Raises OSError."""
    for part in (*path.rglob("*"), path):
        fsync(part)


def land(part: Path, path: Path) -> None:
    """A file that was written beside its place takes it; on disk with its name when this returns. Raises OSError."""
    fsync(part)
    part.replace(path)
    fsync(path.parent)


def write(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Whole or not at all, in place of what was there; on disk with its name when this returns. Of several who write
    at once, each must have a path of its own. mode: before the umask, from the first byte on. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # what a crash left may be open to more than `mode` says
    try:
        with open(part, "wb", opener=partial(os.open, mode=mode)) as file:
            file.write(content)
        land(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """The same of JSON, with a checksum of its own. Raises OSError."""
    text = json.dumps(value)
    write(path, f"{_checksum(text)}\n{text}\n".encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote. Raises CorruptBlob for a file that is not what was written, FileNotFoundError."""
    with suppress(ValueError):
        checksum, text, end = path.read_bytes().decode().split("\n")
        if checksum == _checksum(text) and not end:
            return json.loads(text)
    raise CorruptBlob(f"{path} does not match its checksum")


def _checksum(text: str) -> str:
    return str(xxhash.xxh3_128_hexdigest(text.encode()))
