"""Looks after a vault as a whole from outside: checks, backs up, restores, measures, compacts it.

Takes folders; needs no model and no caller, as whoever can read the folder, and has its key, can read all that is in
it. key, scratch: of an encrypted vault, url: of one on a server, as config.vault has them. Must not know how any of it
is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memos.config import GovernanceConfig, QuotaConfig
from memos.errors import VaultError
from memos.infrastructure.vault import stores
from memos.infrastructure.vault.care import backup as vault_backup
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import folder_lock
from memos.infrastructure.vault.stores import Place, store_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from memos.infrastructure.vault.care.backup import Backup, Manifest
    from memos.infrastructure.vault.stores import Show


def _quiet(*_: object) -> None: ...


def is_vault(folder: Path) -> bool:
    """True for the folder of a vault, wherever its rows are."""
    return stores.is_vault(folder)


def claimed(folder: Path, name: str) -> AbstractContextManager[Callable[[str], None]]:
    """Be the only process that is `name` for a vault that is open; what is entered takes who that is, told to others.
    Raises VaultError."""
    return folder_lock.claimed(folder, name)


def check(folder: Path, show: Show = _quiet, key: str | None = None, url: str | None = None) -> list[str]:
    """What is wrong with a vault or a backup, in words; reads every byte and changes none.

    Raises VaultError where there is neither, or one of a newer schema; WrongKey, KeyUnusable.
    """
    if (folder / vault_backup.NAME).exists():
        return vault_backup.problems(folder, show, key)
    place = Place(folder, key, url=url)
    return store_of(place).problems(place, show)


def back_up(
    folder: Path, target: Path, show: Show = _quiet, key: str | None = None, scratch: Path | None = None
) -> Backup:
    """Copy a vault as it is now, while others write to it. An encrypted one stays so. Raises InputError, VaultError."""
    if advice := store_of(Place(folder)).elsewhere:
        raise VaultError(f"{folder} is of a vault on a server, of which memos cannot make a backup; {advice}")
    with _opened(folder, key=key, scratch=scratch) as vault:
        return vault_backup.back_up(vault.path, target, show, vault.sealing)


def restore(
    backup: Path,
    target: Path,
    show: Show = _quiet,
    forgotten: Path | None = None,
    governance: GovernanceConfig = GovernanceConfig(),
) -> Manifest:
    """Make a vault of a backup, in a new or empty folder, in which those are forgotten who were since: in the vault
    that it is of, or in the vault or backup `forgotten`. Raises InputError, VaultError, Held."""
    return vault_backup.restore(backup, target, show, forgotten, governance)


def stats(
    folder: Path,
    quota: QuotaConfig = QuotaConfig(),
    key: str | None = None,
    scratch: Path | None = None,
    url: str | None = None,
) -> dict[str, Any]:
    """How much a vault holds. Raises VaultError."""
    with _opened(folder, quota, key, scratch, url) as vault:
        return vault.stats.all()


def compact(
    folder: Path, key: str | None = None, scratch: Path | None = None, url: str | None = None
) -> tuple[int, int]:
    """Give space back to the disk; bytes before and after. Raises VaultError."""
    with _opened(folder, key=key, scratch=scratch, url=url) as vault:
        return vault.compact()


def _opened(
    folder: Path,
    quota: QuotaConfig = QuotaConfig(),
    key: str | None = None,
    scratch: Path | None = None,
    url: str | None = None,
) -> MemVault:
    if not is_vault(folder):
        raise VaultError(f"{folder} holds no vault: there is no vault.db; name the folder of a vault")
    return MemVault(folder, quota, key=key, scratch=scratch, url=url)
