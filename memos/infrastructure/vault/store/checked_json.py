"""JSON in a file with a checksum of its own, which is written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from memos.errors import CorruptBlob
from memos.infrastructure.vault.store import on_disk


def write(path: Path, value: Any) -> None:
    """On disk when this returns. Raises OSError."""
    text = json.dumps(value)
    on_disk.write(path, f"{_checksum(text)}\n{text}\n".encode())


def read(path: Path) -> Any:
    """Raises CorruptBlob for a file that is not what was written, FileNotFoundError."""
    try:
        checksum, text, end = path.read_bytes().decode().split("\n")
        if checksum == _checksum(text) and not end:
            return json.loads(text)
    except ValueError:
        pass
    raise CorruptBlob(f"{path} does not match its checksum")


def _checksum(text: str) -> str:
    return str(xxhash.xxh3_128_hexdigest(text.encode()))
