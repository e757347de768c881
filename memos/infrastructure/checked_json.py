"""JSON in a file with a checksum of its own before it, which lands whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import xxhash

from memos.errors import CorruptBlob


def write(path: Path, value: Any) -> None:
    """On disk when this returns. Raises OSError."""
    part, text = path.with_name(f"{path.name}.part"), json.dumps(value)
    with part.open("w", encoding="utf-8") as file:
        file.write(f"{_checksum(text)}\n{text}\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def read(path: Path) -> Any:
    """Raises CorruptBlob for a file that is not what was written, FileNotFoundError."""
    try:
        told, text, end = path.read_bytes().decode().split("\n")
        if told == _checksum(text) and not end:
            return json.loads(text)
    except ValueError:
        pass
    raise CorruptBlob(f"{path} does not match its checksum")


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(text: str) -> str:
    return str(xxhash.xxh3_128_hexdigest(text.encode()))
