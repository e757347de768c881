"""Puts a vault that was rewritten in its folder in the place of the former one; knows names of files alone.

    next.part/   the copy, being written; the next opening removes it
    next/        the copy, whole: from its renaming on it is the vault, and the next opening finishes the swap

So a vault that was killed at any time opens as it was, or as it was to become.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from memos.errors import VaultError
from memos.infrastructure.vault.blobs.vault_files import remove
from memos.infrastructure.vault.store.on_disk import fsync
from memos.plugins.encryption import vault_key

PART, NEXT = "next.part", "next"
FILES, _FOLDERS = ("vault.db", "vectors.db"), ("blobs", "index")
# jobs begin anew; copies from before an upgrade would stay as they were encrypted, or not
_LEFT = ("tmp", "work", "vault.schema-*")


def is_being_swapped(folder: Path, whole: bool = False) -> bool:
    """True if a copy lies there. whole: only one that is to take the place of the vault."""
    return (folder / NEXT).exists() or (not whole and (folder / PART).exists())


def finish_swap(folder: Path, alone: bool) -> None:
    """Of a vault that is being opened: what was cut off is undone, or finished. Raises VaultError."""
    if not alone:
        if (folder / NEXT).exists():
            raise VaultError(f"the key of {folder} is being changed, and that was cut off; open it again to finish it")
        return
    remove(folder / PART)
    if (folder / NEXT).exists():
        swap(folder)


def swap(folder: Path) -> None:
    """Each step can be done again."""
    there = folder / NEXT
    for path in chain.from_iterable(map(folder.glob, _LEFT)):
        remove(path)
    for name in _FOLDERS:
        if (there / name).exists():
            remove(folder / name)
            (there / name).rename(folder / name)
    for name in FILES:
        if (there / name).exists():
            for log in ("-wal", "-shm"):  # of the file that it takes the place of
                remove(folder / f"{name}{log}")
            (there / name).rename(folder / name)
    key = there / vault_key.NAME
    if key.exists() and key.stat().st_size:
        key.rename(folder / vault_key.NAME)
    elif key.exists():
        remove(folder / vault_key.NAME)
    fsync(folder)
    remove(there)
    fsync(folder)
