"""The part of `memos.shelves` for buckets; imports obstore only once a bucket is reached."""

from __future__ import annotations

import logging
from pathlib import Path

from memos.errors import VaultError
from memos.infrastructure.vault.blobs.blob_store import ReadableShelf
from memos.infrastructure.vault.blobs.vault_files import FileFormat
from memos.infrastructure.vault.store.extension_tables import ExtensionTables
from memos.infrastructure.vault.store.transactions import Rows
from memos.infrastructure.vault.stores import OpenStore, Place, beyond
from memos.plugins.object_storage.bucket import Bucket
from memos.plugins.object_storage.object_shelf import Objects, ObjectShelf
from memos.plugins.object_storage.tables import TABLES

log = logging.getLogger("memos")


class ObjectStorage:
    """A `ShelfKind`."""

    def open(self, place: Place, store: OpenStore) -> ObjectShelf:
        """A bucket that is new to the vault is asked whether it can be used, and what is wrong with it is told: text
        needs none. One that is known is reached when it is needed."""
        noted = beyond(store.rows)
        url = Bucket(place.blobs or noted).url
        db = ExtensionTables(store.rows).open(*TABLES)
        identity = store.identity or f"in {place.folder.resolve()} (inode {place.folder.stat().st_ino})"
        shelf = ObjectShelf(place.folder, store.files.format, db, store.shelf, place.cache_bytes, url, identity)
        if noted != url:
            try:
                shelf.claim()
            except VaultError as error:
                log.warning("%s", error)
        return shelf

    def reading(self, folder: Path, format: FileFormat, rows: Rows, below: ReadableShelf | None) -> Objects:
        return Objects(folder, format, rows, below, budget=1 << 62)


OBJECT_STORAGE = ObjectStorage()
