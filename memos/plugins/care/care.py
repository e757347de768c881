"""Looks after the folder of a vault: checks, copies and opens it.

Knows how a folder is opened as what it is, a vault or a backup, as config.vault has it. Must not know how any of it is
done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.config import VaultConfig
from memos.errors import VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.stores import Place, is_vault, store_of
from memos.plugins.care import backup as vault_backup
from memos.plugins.care import check as vault_check
from memos.plugins.care.backup import restore

if TYPE_CHECKING:
    from pathlib import Path

    from memos.plugins.care.backup import Backup
    from memos.plugins.progress import Show

__all__ = ["back_up", "check", "opened", "restore"]


def _quiet(*_: object) -> None: ...


def check(folder: Path, show: Show = _quiet, settings: VaultConfig = VaultConfig()) -> list[str]:
    """What is wrong with a vault or a backup, in words; reads every byte and changes none.

    Raises VaultError where there is neither, or one of a newer schema; WrongKey, KeyUnusable.
    """
    if (folder / vault_backup.NAME).exists():
        return vault_backup.problems(folder, show, settings.key)
    return vault_check.problems(Place(folder, settings.key, url=settings.server), show)


def back_up(folder: Path, target: Path, show: Show = _quiet, settings: VaultConfig = VaultConfig()) -> Backup:
    """Copy a vault as it is now, while others write to it. An encrypted one stays so. Raises InputError, VaultError."""
    if advice := store_of(Place(folder)).elsewhere:
        raise VaultError(f"{folder} is of a vault on a server, of which memos cannot make a backup; {advice}")
    with opened(folder, settings.model_copy(update={"url": None})) as vault:
        return vault_backup.back_up(vault.path, target, show, vault.sealing, vault.blobs)


def opened(folder: Path, settings: VaultConfig = VaultConfig()) -> MemVault:
    """The vault that is there; of one on a server, the folder may be a new one. Raises VaultError."""
    if not (settings.server or is_vault(folder)):
        raise VaultError(f"{folder} holds no vault: there is no vault.db; name the folder of a vault")
    return MemVault(
        folder,
        settings.quota,
        key=settings.key,
        scratch=settings.scratch,
        url=settings.server,
        blobs=settings.blobs,
        cache_bytes=settings.cache_bytes,
    )
