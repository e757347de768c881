"""Moves the payloads of a vault from where they lie into a bucket, from one to another, or home again.

One by one, each in a transaction of its own: whatever ends it, every payload lies where its row says, and the same
command goes on with those that are left.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from memos.config import VaultConfig
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import SUFFIX
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store.on_disk import fsync, fsync_all
from memos.plugins.care.care import opened
from memos.plugins.object_storage.object_shelf import ObjectShelf
from memos.plugins.progress import Show

log = logging.getLogger("memos")


class Moved(NamedTuple):
    """moved: payloads. damaged: those that were left where they are, since they are not what they were."""

    to: str
    moved: int
    damaged: int


def move(folder: Path, settings: VaultConfig, to: str | None, adopt: bool, show: Show) -> Moved:
    """to: the URL of a bucket; None: home, where they would lie without one. adopt: that bucket belonged to this vault
    before it was moved. Raises VaultError."""
    with opened(folder, settings.model_copy(update={"blobs": to})) as vault:
        shelf = vault.blobs.shelf
        if not isinstance(shelf, ObjectShelf):
            raise VaultError(f"no payload of {folder} lies in a bucket, so there is none to bring home")
        if to is not None:
            if adopt:
                shelf.adopt()
            shelf.claim()
        names = shelf.elsewhere() if to is not None else shelf.in_buckets()
        damaged = 0
        for i, name in enumerate(names):
            show("payloads", i, len(names))
            damaged += not _moved(vault, shelf, name, to is not None)
        show("payloads", len(names), len(names))
        vault.blobs.settle()
        if to is None:
            shelf.leave_empty()
    return Moved(to or "home", len(names) - damaged, damaged)


def _moved(vault: MemVault, shelf: ObjectShelf, name: str, out: bool) -> bool:
    """False for a damaged one."""
    try:
        path = vault.blobs.sound(name)
    except CorruptBlob as error:
        log.warning("not moved: %s", error)
        return False
    if out:
        shelf.bring(name, path, SUFFIX if path.suffix == SUFFIX else "")
    else:
        fsync_all(path)  # it was a copy, and is the only one from now on
        for folder in path.parents[:3]:
            fsync(folder)
    with vault.transaction():
        if out:
            shelf.put(name, path)
        else:
            shelf.bring_home(name, path)
    return True
