"""The folder of a long run: held by one process at a time, its files written whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from memos.errors import InputError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder: two runs would undo each other's work. A run that dies lets go of it. Raises InputError."""
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "run.lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another run is going on in {folder}; wait for it, or choose another --out") from None
        yield


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Raises InputError where the folder cannot be written within it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--out {folder} cannot be written: {error}; give a folder that can") from None


def write(path: Path, data: Mapping[str, object]) -> None:
    """As JSON."""
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("w", encoding="utf-8") as f:
        json.dump(data, f, indent=1, ensure_ascii=False)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)
