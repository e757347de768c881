"""Erases from disk what deletions still owe: bytes of deleted texts and payloads.

A deletion writes its debt down in its own transaction; it is paid right after the commit, of a large vault soon, in
the background; where that is cut short, a later commit or opening pays it. Must not know what was deleted, nor why.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from memos.errors import VaultError

if TYPE_CHECKING:
    from memos.infrastructure.vault.blobs.blob_store import BlobStore
    from memos.infrastructure.vault.blobs.index_store import IndexStore
    from memos.infrastructure.vault.store.transactions import Store
    from memos.infrastructure.vault.tables.vector_table import VectorTable

log = logging.getLogger("memos")
AT_ONCE_BYTES = 1 << 25  # of vault.db that are vacuumed while somebody waits: some tenths of a second
OWED = "SELECT 1 FROM erasures LIMIT 1"
_SOON_S = 1.0  # after a deletion, in a large vault
_PAUSE_S = 0.05  # between tries


class Erasing:
    def __init__(self, db: Store, blobs: BlobStore, index: IndexStore, vectors: VectorTable, shelved: bool) -> None:
        """shelved: payloads lie on a shelf, so that the folder has copies, which other machines' deletions reach."""
        self._db, self._blobs, self._index, self._vectors, self.shelved = db, blobs, index, vectors, shelved
        self._vacuumed = 0  # the last deletion of a text that left nothing in vault.db
        self._deleted = -1  # the last deletion that copies of payloads are free of
        self._thread: threading.Thread | None = None
        self._starting, self._closing = threading.Lock(), threading.Event()

    @property
    def going_on(self) -> bool:
        """True while the background pays."""
        return self._thread is not None

    def close(self) -> None:
        """What the background had begun is finished."""
        self._closing.set()
        if thread := self._thread:
            thread.join()
            self.erase()

    def wait(self, wait_s: float = 0.0) -> bool:
        """True while deleted bytes may still lie on disk, as somebody reads. wait_s: for so long whoever does, as what
        indexes in the background, is waited for."""
        until = time.monotonic() + wait_s
        while (left := self.owes()) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            self.erase()
        return left

    def owes(self) -> bool:
        return bool(self._db.rows(OWED))

    def pay(self) -> None:
        """The debt of `delete`: at once where that takes some tenths of a second. Else in the
        background, where one rewriting of vault.db is enough for many deletions."""
        if not self.owes() or next(iter(self._db.sizes().values())) < AT_ONCE_BYTES:
            return self.erase()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._pay_later, daemon=True)
                self._thread.start()

    def _pay_later(self) -> None:
        """Until all is paid, also what is deleted meanwhile; who is in the way is waited for."""
        while not self._closing.wait(_SOON_S):
            self.erase()
            with self._starting:
                if not self.owes():
                    self._thread = None
                    return

    def erase(self) -> None:
        """Pay the debt of `delete`: the blobs that nobody refers to, and what is left of the text in vault.db and in
        files of an index."""
        try:
            self.drop_copies()
            debt = self._db.rows("SELECT n, sha256 FROM erasures ORDER BY n")
            if not debt:
                return self._blobs.settle()
            with self._db.writing():
                with self._db.transaction():  # no put can come between the question who refers to it and the removal
                    for sha256 in {sha256 for _, sha256 in debt if sha256 is not None}:
                        self._blobs.discard(sha256)
                last_text = max((n for n, sha256 in debt if sha256 is None), default=0)
                if last_text > self._vacuumed:
                    with self._db.transaction():
                        self._vectors.forget_strays()
                    self._index.sweep(alone=True)  # whoever writes one now began before the deletion
                    if self._db.vacuum():
                        self._vacuumed = last_text
                cleared = last_text <= self._vacuumed and self._db.clear_logs()
            self._blobs.settle()  # which may take long, and so in nobody's way
            if cleared:
                with self._db.transaction():
                    self._db.write_many("DELETE FROM erasures WHERE n = ?", [(n,) for n, _ in debt])
        except (VaultError, OSError) as error:  # as another process is writing: a later commit pays the debt
            log.warning("what was deleted has left traces on disk (%s); the next write tries again", error)

    def drop_copies(self) -> None:
        """Of what was deleted on another machine: copies in the folder go with the next write here, or opening."""
        if not self.shelved:
            return
        [(deleted,)] = self._db.rows("SELECT deleted FROM clock")
        if deleted != self._deleted:
            with self._db.writing():
                self._blobs.drop_copies()
                self._index.sweep()
            self._deleted = deleted
