"""Finds the store that a vault is kept in, among the parts of `memos.stores`.

    sqlite       vault.db and files beside it, as they are (plain_store.py); what nobody claims is one of these
    encryption   the same files, encrypted                                   memos.plugins.encryption
    postgres     rows and payloads on a server                               memos.plugins.postgres

Payloads of any of them may lie beyond, by the part of `memos.shelves`      memos.plugins.object_storage

Must not know what rows are for, nor how a store keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memos.errors import InputError, PluginError, VaultError, how_to_install
from memos.extensions import Registry
from memos.infrastructure.vault.blobs.vault_files import FileFormat, Files, PlainFormat
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER, Driver
from memos.infrastructure.vault.store.extension_tables import described

if TYPE_CHECKING:
    from memos.infrastructure.vault.blobs.blob_store import ReadableShelf, Shelf
    from memos.infrastructure.vault.care.residue import Unsealer
    from memos.infrastructure.vault.store.transactions import Rows, Store

_PLAIN_FORMAT = PlainFormat()


@dataclass(frozen=True)
class Place:
    """Where a vault is, as config.vault says. key: where the key of an encrypted one is; scratch: for its payloads in
    the clear; url: of the server that it is on; blobs: of where payloads lie beyond it, of which cache_bytes are here,
    too. None: as it was, or not at all."""

    folder: Path
    key: str | None = None
    scratch: Path | None = None
    url: str | None = None
    blobs: str | None = None
    cache_bytes: int = 1 << 32


@dataclass(frozen=True)
class Sealing:
    """How all files of a vault, and of its backups, are written; by default, as they are."""

    driver: Driver = PLAIN_DRIVER
    format: FileFormat = _PLAIN_FORMAT
    unsealer: Unsealer | None = None  # None: files say what their bytes are
    key_files: tuple[str, ...] = ()  # in the vault's folder, which a backup needs too


PLAIN_SEALING = Sealing()


class OpenStore(NamedTuple):
    """What an open vault consists of. shelf: where payloads lie, if not in the folder; identity: what a copy of the
    vault has not, which is its folder where it is ""."""

    rows: Store
    files: Files
    sealing: Sealing
    shelf: Shelf | None = None
    identity: str = ""


class StoreKind(Protocol):
    """A way to keep vaults: an entry point of `memos.stores`. Its module is imported whenever a vault is opened, so it
    imports other packages in functions."""

    elsewhere: str  # what to do in place of a backup by memos, where the folder does not hold the rows; else ""

    def claims(self, place: Place) -> bool:
        """True if a vault lies there that is kept in this way, or a new one should be."""

    def open(self, place: Place, alone: bool) -> OpenStore:
        """alone: nobody else has the folder open, and nobody can open it meanwhile. Raises VaultError, KeyUnusable."""

    def sealing(self, place: Place) -> Sealing:
        """Of a vault that is there, or of a backup of one, which is only read. Raises WrongKey, KeyUnusable."""


STORES: Registry[StoreKind] = Registry("memos.stores", "store")


def store_of(place: Place) -> StoreKind:
    """The store of the vault there, or of the one to be made. Raises VaultError where the plug-in that it needs is
    missing or broken."""
    if claiming := [kind for kind in _usable(place) if kind.claims(place)]:
        return max(claiming, key=lambda kind: bool(kind.elsewhere))  # which refuses what the others were asked for
    from memos.infrastructure.vault.sqlite.plain_store import PLAIN_STORE  # which stands on this

    return PLAIN_STORE


class ShelfKind(Protocol):
    """How payloads lie beyond a vault: the part of `memos.shelves`, which notes where in the table of SHELF_PLACES."""

    def open(self, place: Place, store: OpenStore) -> Shelf:
        """Reaches nobody. Raises VaultError for a place that it cannot use."""

    def reading(self, folder: Path, format: FileFormat, rows: Rows, below: ReadableShelf | None) -> ReadableShelf:
        """The same for one who only reads. below: where the others lie, if not in the folder."""


SHELVES: Registry[ShelfKind] = Registry("memos.shelves", "place for payloads")
SHELF_PLACES, SHELF_OBJECTS = "blob_places", "blob_objects"  # without rows there, payloads lie where the store has them
_BEYOND = "object-storage"


def beyond(rows: Rows) -> str:
    """The URL of where payloads of a vault lie beyond its folder and server, or ""."""
    if not any(table.name == SHELF_PLACES for table in described(rows)):
        return ""
    return next((str(url) for (url,) in rows.rows(f"SELECT url FROM {SHELF_PLACES} ORDER BY n DESC")), "")


def shelf_of(place: Place, store: OpenStore) -> Shelf | None:
    """Where payloads of an open vault lie, if not in the folder. Raises VaultError."""
    if place.blobs is None and not beyond(store.rows):
        return store.shelf
    return shelf_kind().open(place, store)


def shelf_kind() -> ShelfKind:
    """What opens payloads that lie beyond a vault. Raises VaultError."""
    try:
        return SHELVES.get(_BEYOND)
    except (InputError, PluginError) as error:
        raise VaultError(f"payloads cannot lie beyond the vault: {error}; {how_to_install(_BEYOND)}") from error


def is_vault(folder: Path) -> bool:
    """True for the folder of a vault, wherever its rows are."""
    return (folder / "vault.db").is_file() or bool(store_of(Place(folder)).elsewhere)


def _usable(place: Place) -> Iterator[StoreKind]:
    names = STORES.names()
    needed = _needed(place)
    for name in sorted(needed - set(names)):
        raise VaultError(f"{place.folder} needs the store {name!r}, which is not installed; {how_to_install(name)}")
    for name in names:
        if name == "sqlite":
            continue
        try:
            yield _kind(name)
        except PluginError as error:
            if name in needed:
                raise VaultError(f"{place.folder} cannot be opened: {error}; {how_to_install(name)}") from error


@cache
def _kind(name: str) -> StoreKind:
    """Looked up once: a vault may be opened often, and whether a package fits is not asked each time."""
    return STORES.get(name)


def _needed(place: Place) -> set[str]:
    """The stores of memos that a vault cannot do without, by what lies in its folder or was asked for: where one of
    them is missing, it must not be taken for a plain one."""
    encrypted = place.key is not None or (place.folder / "key.json").exists()
    on_server = place.url is not None or (place.folder / "server.json").exists()
    return ({"encryption"} if encrypted else set()) | ({"postgres"} if on_server else set())
