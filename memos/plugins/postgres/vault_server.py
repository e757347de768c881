"""Tells on which server the vault of a folder is, if it is on one; the folder then holds local files only.

    server.json   the vault's id, and how its server is reached; no password
    signing.key   of the machine that signs the audit log
    blobs/, index/   copies of what the server has, so that a payload can be read as a file; never the only ones
    tmp/, work/   what is being made here

Must not know rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import KeyUnusable, VaultError
from memos.infrastructure.vault.store import on_disk

if TYPE_CHECKING:
    from memos.plugins.postgres.postgres import PostgresDatabase

NAME = "server.json"


def is_on_server(folder: Path) -> bool:
    return (folder / NAME).exists()


def url_of(folder: Path, url: str | None, key: str | None = None) -> str:
    """How to reach the server of a folder's vault, new or not.

    url: `vault.url`; None: as it was. key: `vault.key`. Raises VaultError, KeyUnusable.
    """
    kept = _read(folder)
    if key is not None:
        raise KeyUnusable(
            f"vault.key encrypts the files of a vault, and {folder} is of one on a server, which sees its rows; unset "
            "vault.key, and encrypt the server's disk"
        )
    if kept is None and (folder / "vault.db").exists():
        raise VaultError(
            f"{folder} holds a vault of its own; set vault.path to another folder for the one of vault.url, and move "
            "memories with `memos dump` and `memos load`"
        )
    return url or str((kept or {})["url"])


def opened(folder: Path, url: str) -> PostgresDatabase:
    """The database of the vault, noted down in the folder. Raises VaultError where that belongs to another one."""
    from memos.plugins.postgres.postgres import PostgresDatabase  # loads psycopg

    database, kept = PostgresDatabase(url), _read(folder)
    if kept is not None and kept["vault"] != database.id:
        database.close()
        raise VaultError(
            f"{folder} is of the vault {kept['vault']} on {kept['url']}, and {database.name} has {database.id}; set "
            "vault.path to another folder"
        )
    if kept != (told := {"vault": database.id, "url": database.name}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            on_disk.write_json(folder / NAME, told)
        except OSError as error:
            database.close()
            raise VaultError(
                f"{folder / NAME} was not written ({error.strerror}); set vault.path to a folder you can write to"
            ) from error
    return database


def _read(folder: Path) -> dict[str, str] | None:
    try:
        found = on_disk.read_json(folder / NAME)
        return {"vault": str(found["vault"]), "url": str(found["url"])}
    except FileNotFoundError:
        return None
    except (KeyError, TypeError) as error:
        raise VaultError(
            f"{folder / NAME} names no server ({error}); set vault.url and remove the file, it is written anew"
        ) from error
