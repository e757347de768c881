"""Keeps room on the disk of a vault for reading and deleting, which write too; must not know what is written.

A file in the vault's folder holds the room. It is given up while the disk is nearly full, when a vault takes nothing
new, and is made again once there is room.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from memos.errors import VaultError
from memos.infrastructure.vault.store.on_disk import size_of

NAME = "reserve"
RESERVE_BYTES = 1 << 23  # twice what SQLite lets its log grow to: the log, and rows that it brings into the database
_CLOSING_BYTES = 1 << 20  # that closing writes


def give_up_if_full(folder: Path) -> None:
    """Before anything is written. Raises OSError."""
    if _free(folder) < RESERVE_BYTES // 2:
        (folder / NAME).unlink(missing_ok=True)


def take_back(folder: Path) -> None:
    """What was given up and not used, before another program fills the disk."""
    if _free(folder) < 2 * RESERVE_BYTES and not _held(folder):
        _make(folder, min(_free(folder) - _CLOSING_BYTES, RESERVE_BYTES))


def require(folder: Path) -> None:
    """Before something new is kept. Raises VaultError where the reserve is given up."""
    whole = _held(folder) >= RESERVE_BYTES
    if not whole and not (_free(folder) >= 2 * RESERVE_BYTES and _make(folder, RESERVE_BYTES)):
        raise VaultError(
            f"the disk of {folder} is full, and what is left is for reading and deleting: nothing new is kept; delete "
            "memories (`memos delete`, `memos forget`) or other files, and try again"
        )


def _held(folder: Path) -> int:
    return size_of(folder / NAME)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _make(folder: Path, size: int) -> bool:
    """True if the disk has so much."""
    path = folder / NAME
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):  # zeros could be compressed to nothing
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
        return True
    except OSError:
        path.unlink(missing_ok=True)
        return False
