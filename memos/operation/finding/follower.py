"""Keeps the indexes equal to the vault: reads what changed, embeds what is new, saves them on closing.

Knows the vault, the embedder and when there is news; must not know what is searched for, nor how it is ranked.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Protocol

import numpy as np

from memos.cube import State
from memos.errors import MemosError, VaultError
from memos.infrastructure.vault.mem_vault import MemVault, News
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.operation.finding.columns import Parts
from memos.operation.finding.indexes import MIN_BULK_ROWS, Context, Indexes
from memos.operation.finding.vector_index import Coarse

log = logging.getLogger("memos")
_EPOCH = datetime.fromtimestamp(0, timezone.utc)
BATCH_PAUSE_S = 0.002  # between batches in the background, in which who waits for the lock gets it
BACKGROUND_PAUSE_S = 0.2  # before indexing in the background: turns that come together change each other's context
EMBED_BATCH = 32  # texts that are embedded before their vectors are stored, and before others have their turn
INDEX_LAYOUT = "index/6"  # of what is stored; counts up with whatever changes a row of an index, its terms included
# changes, and their share of all rows, from which indexes are stored: on closing, and in the background
WORTH_STORING, WORTH_STORING_SOON = (1024, 0.05), (MIN_BULK_ROWS, 0.25)
MAX_GONE_ROWS = 1024  # beside half of all, before rows are numbered anew


class TextEmbedder(Protocol):
    """Texts -> for each a unit vector, [dim], and one of each token, [tokens, dim] int8. `name` changes whenever the
    vectors would.

    spans: of each text, where the part begins and ends that is meant; the rest is its context.
    """

    name: str
    dim: int

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]: ...


class Follower:
    """Thread safe: whoever reads `indexes` holds `lock`."""

    def __init__(
        self, vault: MemVault, embedder: TextEmbedder, states: Iterable[State], exact_ms: float, ahead: bool = True
    ) -> None:
        """The others: see MemOperator."""
        self._ahead = ahead
        self._vault, self._embedder, self._states, self._exact_ms = vault, embedder, tuple(states), exact_ms
        self.lock, self._lock_of_worker = threading.RLock(), threading.Lock()
        self.embedding = threading.RLock()  # one batch at a time; taken before `lock` by who needs both
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self._closing, self._is_loaded = threading.Event(), False
        self._guard = vault.guard
        self._layout = " ".join([INDEX_LAYOUT, *self._states, *([self._guard.masks] if self._guard.hides else [])])
        self.edition = 0  # counts up with every change of a row
        self._clear()

    def _clear(self) -> None:
        self.indexes = Indexes(self._embedder.dim, self._exact_ms, self._tokens)
        self.edition += 1
        self.read, self._at = 0, _EPOCH  # the vault's last change that is in here, and until when it was read
        # changes since what is in here was stored, or tried to; whether any memory has replaced another
        self._unstored, self.has_replaced = 0, False

    def _tokens(self, ids: Iterable[str]) -> dict[str, Coarse]:
        return self._vault.vectors.tokens(self._embedder.name, ids)

    # -- in the background -----------------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        """Read what changed in the background: whoever writes does not wait for the embedder. A search that comes
        before it is done waits for the rest, so that what was written is found.

        The first time it is done here, and the embedder loaded: large libraries that two threads import at once meet
        each other's half-made modules.
        """
        if not self._ahead:
            return
        if not self._is_loaded:
            self._is_loaded = True
            return self._quietly(self._load)
        with self._lock_of_worker:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "memos-index")
            if self._pending is None or self._pending.done():
                with suppress(RuntimeError):  # the process is ending, and nobody searches any more
                    self._pending = self._worker.submit(self._quietly, self._refresh_later)

    def _load(self) -> None:
        self._embedder.read(["ready"])
        self.refresh()

    def _refresh_later(self) -> None:
        while (behind := self._vault.last_change() != self.read) or self.indexes.unread:
            is_whole = not behind or len(self.indexes.unread) >= EMBED_BATCH  # those that came first are done with
            if self._closing.wait(BATCH_PAUSE_S if is_whole else BACKGROUND_PAUSE_S):
                break
            self.refresh(most=EMBED_BATCH)
        with self.lock:
            is_worth = self._unstored >= self._least(WORTH_STORING_SOON)
        if is_worth:
            self._store()

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except MemosError as error:  # the next search meets it again, and tells who asked
            log.debug("indexing is put off: %s", error)

    def close(self) -> None:
        """Wait for what goes on in the background, no longer than it takes to keep what is being embedded: the rest is
        embedded when the vault is opened the next time. What the indexes are is kept, so that they are not built again
        then."""
        self._closing.set()
        with self._lock_of_worker:
            if self._worker is not None:
                self._worker.shutdown()
                self._worker = None
        self._quietly(self._close)

    def _close(self) -> None:
        behind = self._vault.index.behind(self._layout, self._embedder.name) if self.read else 0
        if behind and behind >= self._least(WORTH_STORING):
            self._store()

    def settle(self) -> None:
        """Wait until nothing goes on in the background: searches are as fast as they get."""
        with self._lock_of_worker:
            pending = self._pending
        if pending is not None:
            pending.result()
        self.indexes.vectors.settle()

    # -- reading what changed ----------------------------------------------------------------------------------

    def refresh(self, rows: Callable[[], np.ndarray] | None = None, most: int | None = None) -> None:
        """Read what the vault changed since the last time, and embed what has no vector that holds.

        rows: a mask of those that are embedded, asked for when all are there, so that nobody waits for what others have
        written; without it all. most: so many, and the others later.
        """
        with self.lock:
            self.catch_up()
            missing = self._missing(rows() if rows else None, most) if self.indexes.unread else []
        for start in range(0, len(missing), EMBED_BATCH):
            if self._closing.is_set():
                return
            with self.embedding:
                self._embed(missing[start : start + EMBED_BATCH])
            if len(missing) > EMBED_BATCH:
                log.info("indexed %d of %d memories", min(start + EMBED_BATCH, len(missing)), len(missing))

    def catch_up(self) -> None:
        """The same without embedding anything."""
        with self.lock:
            news = self._vault.news(self.indexes.uses, self._at)
            self.has_replaced = news.replaced
            lapsed = self._vault.ageing.lapsed(self._at, news.at) if news.lapsed else []
            if news.change != self.read or lapsed:
                if not self.read:
                    self._restore()
                if self.indexes.catalog.gone > len(self.indexes.catalog) // 2 + MAX_GONE_ROWS:
                    self._unpack(self.indexes.packed())
                with _without_garbage_collection(news.change - self.read > MIN_BULK_ROWS):
                    self._catch_up(news, lapsed)
            elif news.used:
                self._read_uses()

    def _catch_up(self, news: News, lapsed: Sequence[str]) -> None:
        """lapsed: ids of what has expired by now. Raises InputError for a text that cannot be masked in time."""
        changed, gone = self._vault.changed_since(self.read, self._states)
        # before anything is changed, as a pattern that takes too long raises
        shown = {cube.id: self._guard.as_shown(cube) for cube in changed if cube.text}
        catalog = self.indexes.catalog
        self.edition += 1
        self._unstored += len(changed) + len(gone)
        try:
            deleted = self._vault.deleted(catalog.living) if news.deletion > self.read else []
            cut = [cube.id for cube in changed if cube.is_cut]  # found by their passages from now on
            for id in (*gone, *lapsed, *deleted, *cut):
                self.indexes.drop(id)
            new = [c for c in changed if c.text and not c.is_cut and catalog.version_of(c.id) < c.version]
            self.indexes.add(sorted(new, key=lambda cube: cube.order), shown)
            for cube in (one for one in changed if one.id in catalog):
                self.indexes.cold.all[catalog.row(cube.id)] = cube.state is State.COLD
        except BaseException:  # even Ctrl-C: a row that stands in some indexes only would shift all that follow
            self._clear()
            raise
        if news.used:
            self._read_uses()
        self.read, self._at = news.change, news.at

    def _read_uses(self) -> None:
        indexes = self.indexes
        for n, id, when in self._vault.usage.uses(indexes.uses):
            indexes.uses = n
            if id in indexes.catalog:
                indexes.used.all[indexes.catalog.row(id)] = when.timestamp()

    def _missing(self, mask: np.ndarray | None, most: int | None) -> list[str]:
        """The memories of the rows, or of those in the mask, for which there is no vector; each other has the vault's,
        if it is of this version in this context. most: see `refresh`.

        Cut short, it goes on from there the next time.
        """
        indexes, catalog = self.indexes, self.indexes.catalog
        indexes.unread = {row for row in indexes.unread if catalog.alive.all[row]}
        wanted = [row for row in sorted(indexes.unread) if mask is None or mask[row]][:most]
        if not wanted:
            return []
        self.edition += 1
        stored = self._vault.vectors.of(self._embedder.name, [catalog.ids[row] for row in wanted])
        missing = []
        for row in wanted:
            version, around, vector = stored.get(id := catalog.ids[row], (0, "", None))
            if vector is None or (version, around) != (catalog.version_of(id), self._context(row).around):
                missing.append(id)
            else:
                indexes.place(row, vector)
        return missing

    def _context(self, row: int) -> Context:
        return self.indexes.context(row, self._guard.masked_by)

    def _embed(self, ids: Sequence[str]) -> None:
        """Make vectors without the lock, so that who has theirs waits for nobody's. What has changed meanwhile stays
        without one."""
        with self.lock:
            before = self._unread(ids)
        contexts = [context for _, _, context in before.values()]
        vectors = self._embedder.read([c.text for c in contexts], [c.span for c in contexts]) if before else []
        with self.lock:
            now, made = self._unread(ids), list[VectorRow]()
            for (id, was), (vector, tokens) in zip(before.items(), vectors, strict=True):
                if id in now and now[id][1:] == was[1:]:
                    row, version, context = now[id]
                    self.indexes.place(row, vector)
                    made.append(VectorRow(id, version, context.around, vector, tokens))
            self.edition += 1
        if made:
            self._vault.vectors.put(self._embedder.name, made)

    def _unread(self, ids: Sequence[str]) -> dict[str, tuple[int, int, Context]]:
        """Those without a vector: row, version and context by id."""
        catalog = self.indexes.catalog
        rows = {id: catalog.row(id) for id in ids if id in catalog}
        left = {id: row for id, row in rows.items() if row in self.indexes.unread}
        return {id: (row, catalog.version_of(id), self._context(row)) for id, row in left.items()}

    # -- what is stored ----------------------------------------------------------------------------------------

    def _least(self, worth: tuple[int, float]) -> float:
        least, share = worth
        return max(least, share * len(self.indexes.catalog))

    def _store(self) -> None:
        """Store the indexes in the vault; until that is written, searches and changes go on."""
        with self.lock:
            self.catch_up()  # what was deleted meanwhile must not be stored
            parts, change, self._unstored = self.indexes.packed(), self.read, 0
        try:
            self._vault.index.save(self._layout, self._embedder.name, change, parts)
        except VaultError as error:
            log.warning("%s", error)

    def _restore(self) -> None:
        try:
            stored = self._vault.index.load(self._layout, self._embedder.name)
        except VaultError as error:
            log.warning("%s; the indexes are built from the memories", error)
            return
        if stored is not None:
            self.read, parts = stored
            self._unpack(parts)
            self._unstored = 0

    def _unpack(self, parts: Parts) -> None:
        self.indexes = Indexes.unpacked(parts, self._embedder.dim, self._exact_ms, self._tokens)
        self.edition += 1


@contextmanager
def _without_garbage_collection(is_long: bool) -> Iterator[None]:
    """The collector of garbage would walk through all that is being built, again and again: a quarter of the time."""
    if not is_long or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
