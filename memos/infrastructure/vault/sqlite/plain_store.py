"""Keeps a vault in a folder with its files as they are: the store that needs no plug-in."""

from __future__ import annotations

from memos.infrastructure.vault.blobs.vault_files import PlainFiles
from memos.infrastructure.vault.sqlite.database import Database
from memos.infrastructure.vault.stores import PLAIN_SEALING, OpenStore, Place, Sealing


class PlainStore:
    """A `StoreKind`."""

    elsewhere = ""

    def claims(self, place: Place) -> bool:
        return (place.folder / "vault.db").exists() and place.key is None and place.url is None

    def open(self, place: Place, alone: bool) -> OpenStore:
        return OpenStore(Database(place.folder / "vault.db"), PlainFiles(place.folder), PLAIN_SEALING)

    def sealing(self, place: Place) -> Sealing:
        return PLAIN_SEALING


PLAIN_STORE = PlainStore()
