"""The payloads of a vault: staged, stored, read and discarded; must not know what a cube is for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import Blob

if TYPE_CHECKING:
    from memos.infrastructure.vault.blobs.blob_store import BlobStore
    from memos.infrastructure.vault.blobs.vault_files import Files
    from memos.infrastructure.vault.store.store import Store


class Payloads:
    def __init__(self, db: Store, store: BlobStore, files: Files, require_room: Callable[[int, int], None]) -> None:
        """require_room: for so many bytes, and so many of payloads; raises QuotaExceeded."""
        self._db, self._store, self._files, self._require_room = db, store, files, require_room

    def staging(self) -> AbstractContextManager[Path]:
        """A path where nothing is yet, for a file or a folder; what is left there afterwards is removed.

        Keep the block open until the cube is put: meanwhile `sweep` leaves its payload alone.
        """
        return self._store.staging()

    def store(self, path: Path) -> tuple[str, int]:
        """Move a staged file or folder to its place; its sha256 and bytes. A damaged payload of that name is replaced.

        Raises QuotaExceeded.
        """
        ready = self._store.seal(path)
        with self._db.transaction():  # as removing a payload is, in this process or another
            if self._store.find(ready.sha256) is None:
                self._require_room(ready.size, ready.size)
            self._store.place(ready)
        return ready.sha256, ready.size

    def path(self, blob: Blob, verified: bool = True) -> Path:
        """Where the payload can be read, after its digest was verified. Raises CorruptBlob.

        verified: False for a reader that verifies a checksum of its own; then only a missing file is told.
        """
        return self._store.verified(blob.sha256) if verified else self._store.there(blob.sha256)

    def stored(self, blob: Blob) -> Path:
        """What of the payload lies on disk, maybe encrypted. Raises CorruptBlob."""
        return self._store.stored(blob.sha256)

    def forget_lent(self, blob: Blob) -> None:
        """What an encrypted vault keeps of a payload in memory goes; the next reader decrypts it again."""
        self._files.forget(blob.sha256)

    def discard(self, sha256: str) -> None:
        """Remove a stored payload that no cube came to refer to, as when its publishing was refused."""
        with self._db.transaction():  # as `put` does: what another process is about to name is not taken from under it
            self._store.drop(sha256)

    def work(self, job: str) -> Path:
        """A folder for what a job can be taken up from; it goes when the job ends or a source of it changes."""
        return self._store.work(job)
