"""Finds memories: by meaning, by words, and by what was said around them. Knows no rights, states or budgets.

    query -> words and vector -> candidates of either index and their neighbours -> signals -> policy's score -> best

Who may see what arrives as a `View` and narrows every index before anything is ranked. The vault is the truth: what it
changed since the last call is read before each search, in this process or another. Vectors are kept there under the
embedder's name, so that a restart embeds nothing. A memory is ranked by what is shown of it, so that no score tells
what is masked; its owner's searches compare the words of that, too.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain, zip_longest
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memos.cube import Fact, MemCube, State, Text
from memos.errors import InputError, MemosError, VaultError
from memos.infrastructure.vault.mem_vault import MemVault, News
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.operation.finding.catalog import AROUND, Catalog, Mask, Rows, View
from memos.operation.finding.column import Column
from memos.operation.finding.entity_graph import EntityGraph
from memos.operation.finding.hidden_words import HiddenWords
from memos.operation.finding.keyword_index import KeywordIndex, Matches
from memos.operation.finding.packing import Parts, at, beneath, pack, unpack
from memos.operation.finding.token_index import TokenIndex
from memos.operation.finding.vector_index import VectorIndex
from memos.operation.policies.baselines import PLAIN_RAG
from memos.operation.policies.policy import Floats, Score, Signals
from memos.operation.policies.words import terms

log = logging.getLogger("memos")
Rerank = Callable[[str, Sequence[str]], Floats]  # query, texts -> how well each answers, 0 to 1
LONGEST = 20_000  # characters of a query that are looked at
_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_ALL = 2048  # so few allowed rows are all candidates
_BEST = 100  # else: rows that each index proposes
_PIECE = 64  # scores of which the highest is looked at first
_NEIGHBOURS = (0.5, 0.3, 0.3, 0.2)  # weight of the words of rows before and after: the nearest, the next
_CONTEXT = 1000  # characters of a text and its neighbours that are embedded together
COMPARED = 50  # of the best: those whose tokens are compared with the query's
_LONG = 40  # terms from which a text counts as long as any
_VIEWS = 8  # whose counts are kept
_PAUSE_S = 0.2  # before indexing in the background: turns that come together change each other's context
_AT_ONCE = 128  # texts that are embedded before they are kept
_LAYOUT = "index/2"  # of what is kept; counts up with whatever changes a row of an index, its terms included
_MANY = 4096  # changes from which indexes are built in bulk
# changes, and their share of all, from which indexes are kept: on closing, and since they last were while others go on
_WORTH, _WORTH_SOON = (1024, 0.05), (_MANY, 0.25)


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


@dataclass(frozen=True)
class Found:
    """A memory found: its score, and the signals that it was given for."""

    id: str
    score: float
    why: dict[str, float]


@dataclass(frozen=True)
class _Told:
    """What some rows tell whatever the query is: one value for each."""

    rows: Rows  # ascending
    vectors: Floats  # [rows, dim]
    around: Rows  # [4, rows], of those before and after; -1 where there is none
    thread: Rows
    speaker: npt.NDArray[np.int32]
    subject: npt.NDArray[np.int32]
    question: Floats
    length: Floats
    said: npt.NDArray[np.float64]

    def among(self, rows: Iterable[int], values: Iterable[float]) -> Floats:
        """[rows]: these values for some of them, and 0 for the others."""
        found = np.zeros(len(self.rows), np.float32)
        found[np.searchsorted(self.rows, list(rows))] = list(values)
        return found


@dataclass(frozen=True)
class _Seen:
    """What a view looks at, counted once for all its searches between two changes."""

    mask: Mask
    own: Mask | None  # of these, those that are the caller's own; None where nothing is masked for anybody
    rows: Rows
    told: _Told | None  # of all rows, where they are few
    speakers: frozenset[int]
    latest: Rows
    mean: float  # terms of a row
    thread_lengths: Floats  # [threads]
    threads: int
    thread_mean: float


@dataclass(frozen=True)
class _Context:
    """A text with what was said around it: where it stands therein, and versions of the others."""

    text: str
    span: tuple[int, int]
    around: str


class MemOperator:
    """The indexes over the vault's texts. Thread safe."""

    def __init__(
        self,
        vault: MemVault,
        embedder: TextEmbedder,
        states: Iterable[State] = tuple(State),
        exact_ms: float = 2.0,
        hops: int = 2,
        rerank: Rerank | None = None,
        compared: int = COMPARED,
    ) -> None:
        """states: of cubes that can be found. exact_ms: vectors are compared one by one where that takes no longer.
        hops: facts that are followed from what a query is about. rerank: reads the best candidates beside the query.
        compared: of the best candidates, those whose tokens are compared with the query's; 0 for none."""
        self._vault, self._embedder, self._states = vault, embedder, tuple(states)
        self._exact_ms, self._hops, self._rerank, self._compared = exact_ms, hops, rerank, compared
        self._lock, self._lock_of_worker = threading.RLock(), threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self._closing, self._is_loaded = threading.Event(), False
        self._guard = vault.guard
        self._layout = " ".join([_LAYOUT, *self._states, *([self._guard.masks] if self._guard.hides else [])])
        self._clear()

    def _clear(self) -> None:
        self._catalog, self._words, self._graph = Catalog(), KeywordIndex(), EntityGraph()
        self._hidden = HiddenWords()
        self._vectors = VectorIndex(self._embedder.dim, self._exact_ms)
        self._tokens = TokenIndex(self._embedder.dim, self._read_tokens)
        self._texts: list[str] = []  # of each row, for its neighbours' contexts
        self._used = Column(np.float64)  # of each row: its last use, or its keeping, in seconds since 1970
        self._uses = 0  # the vault's last use that is in here
        self._seen: dict[View, _Seen] = {}
        # as of which use, of what view, and the rows
        self._last_used: tuple[int, _Seen | None, Rows] = (-1, None, np.zeros(0, np.int64))
        self._versions: dict[View, dict[str, int]] = {}
        self._unread = set[int]()  # rows without a vector that is known to hold
        self._read, self._at = 0, _EPOCH  # the vault's last change that is in here, and until when it was read
        self._unkept = 0  # changes since what is in here was kept, or tried to

    # keeping up with the vault

    def refresh_soon(self) -> None:
        """Read what changed in the background: whoever writes does not wait for the embedder. A search that comes
        before it is done waits for the rest, so that what was written is found.

        The first time it is done here, and the embedder loaded: large libraries that two threads import at once meet
        each other's half-made modules.
        """
        if not self._is_loaded:
            self._is_loaded = True
            return self._quietly(self._load)
        with self._lock_of_worker:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "memos-index")
            if self._pending is None or self._pending.done():
                self._pending = self._worker.submit(self._quietly, self._refresh_later)

    def _load(self) -> None:
        self._embedder.read(["ready"])
        self.refresh()

    def _refresh_later(self) -> None:
        while self._vault.last_change() != self._read and not self._closing.wait(_PAUSE_S):
            self.refresh()
        with self._lock:
            is_worth = self._unkept >= self._least(_WORTH_SOON)
        if is_worth:
            self._keep()

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
        behind = self._vault.index_behind(self._layout, self._embedder.name) if self._read else 0
        if behind and behind >= self._least(_WORTH):
            self._keep()

    def settle(self) -> None:
        """Wait until nothing goes on in the background: searches are as fast as they get."""
        with self._lock_of_worker:
            pending = self._pending
        if pending is not None:
            pending.result()
        self._vectors.settle()

    def refresh(self) -> None:
        """Read what the vault changed since the last time, and embed what has no vector that holds."""
        with self._lock:
            news = self._vault.news(self._uses, self._at)
            lapsed = self._vault.lapsed(self._at, news.at) if news.lapsed else []
            if news.change == self._read and not lapsed:
                if news.used:
                    self._read_uses()
                return
            if not self._read:
                self._restore()
            if self._catalog.gone > len(self._catalog) // 2 + 1024:  # more holes than rows
                self._unpack(self._packed())
            with _undisturbed(news.change - self._read > _MANY):
                self._catch_up(news, lapsed)

    def _catch_up(self, news: News, lapsed: Sequence[str]) -> None:
        """lapsed: ids of what has expired by now. Raises InputError for a text that cannot be masked in time."""
        changed, gone = self._vault.changed_since(self._read, self._states)
        # before anything is changed, as a pattern that takes too long raises
        shown = {cube.id: self._guard.as_shown(cube) for cube in changed if cube.text}
        self._seen.clear()
        self._versions.clear()
        self._unkept += len(changed) + len(gone)
        try:
            deleted = self._vault.deleted(self._catalog.living) if news.deletion > self._read else []
            for id in (*gone, *lapsed, *deleted):
                self._unread |= self._drop(id)
            new = [cube for cube in changed if cube.text and self._catalog.version(cube.id) < cube.version]
            new.sort(key=lambda cube: cube.order)
            for cube in new:
                self._unread |= self._drop(cube.id) | self._add(cube, shown[cube.id])
            words = (_words(shown[cube.id]) for cube in new)
            if len(new) > max(_MANY, len(self._words.lengths)):
                self._words.extend(words)
            else:
                for of_text in words:
                    self._words.append(of_text)
        except BaseException:  # even Ctrl-C: a row that stands in some indexes only would shift all that follow
            self._clear()
            raise
        if news.used:
            self._read_uses()
        self._embed()
        self._read, self._at = news.change, news.at

    def _read_uses(self) -> None:
        for n, id, when in self._vault.uses(self._uses):
            self._uses = n
            if id in self._catalog:
                self._used.all[self._catalog.row(id)] = when.timestamp()

    def _add(self, cube: MemCube, shown: MemCube) -> set[int]:
        """A row in every index but that of words; the rows whose context it changes, and its own."""
        row = self._catalog.add(cube, shown)
        self._vectors.append(np.zeros(self._embedder.dim, np.float32))
        self._texts.append(shown.text)
        self._used.append((cube.usage.last_recalled or cube.header.created).timestamp())
        self._graph.add(row, _facts(cube, shown))
        if shown is not cube:
            self._hidden.add(row, _words(cube), _words(shown))
        return {row, *chain.from_iterable(self._catalog.around(row))}

    def _drop(self, id: str) -> set[int]:
        """The rows whose context it was in."""
        if id not in self._catalog:
            return set()
        near = set(chain.from_iterable(self._catalog.around(self._catalog.row(id))))
        self._texts[self._catalog.row(id)] = ""
        self._tokens.drop(self._catalog.row(id))
        self._catalog.drop(id)
        return near

    def _embed(self) -> None:
        """A vector for each row that has none: the vault's, if it is of this version in this context, or a new one.

        Cut short, it goes on from there the next time.
        """
        self._unread = {row for row in self._unread if self._catalog.lives(row)}
        if not self._unread:
            return
        rows = sorted(self._unread)
        contexts = {row: self._context(row) for row in rows}
        ids = [self._catalog.ids[row] for row in rows]
        stored = self._vault.vectors(self._embedder.name, ids)
        missing = []
        for row, id in zip(rows, ids, strict=True):
            version, around, vector = stored.get(id, (0, "", None))
            if vector is None or (version, around) != (self._catalog.version(id), contexts[row].around):
                missing.append(row)
            else:
                self._replace(row, vector)
                self._unread.discard(row)
        for start in range(0, len(missing), _AT_ONCE):
            if self._closing.is_set():
                return
            part = missing[start : start + _AT_ONCE]
            wanted = [contexts[row] for row in part]
            made = self._embedder.read([c.text for c in wanted], [c.span for c in wanted])
            kept = []
            for row, context, (vector, tokens) in zip(part, wanted, made, strict=True):
                self._replace(row, vector)
                id = self._catalog.ids[row]
                kept.append(VectorRow(id, self._catalog.version(id), context.around, vector, tokens))
            self._vault.put_vectors(self._embedder.name, kept)
            self._unread.difference_update(part)
            if len(missing) > _AT_ONCE:
                log.info("indexed %d of %d memories", start + len(part), len(missing))

    def _replace(self, row: int, vector: Floats) -> None:
        self._vectors.replace(row, vector)
        self._tokens.drop(row)

    def _read_tokens(self, rows: Sequence[int]) -> dict[int, npt.NDArray[np.int8]]:
        found = self._vault.token_vectors(self._embedder.name, (self._catalog.ids[row] for row in rows))
        return {self._catalog.row(id): tokens for id, tokens in found.items()}

    def _context(self, row: int) -> _Context:
        before, after = self._catalog.around(row)
        own = self._texts[row]
        room, near = _CONTEXT - len(own), set[int]()
        for other in chain.from_iterable(zip_longest(before, after)):  # the nearest first
            if other is not None and room > len(self._texts[other]):
                room -= len(self._texts[other]) + 1
                near.add(other)
        earlier = [self._texts[r] + " " for r in reversed(before) if r in near]
        start = sum(map(len, earlier))
        later = [" " + self._texts[r] for r in after if r in near]
        ids = sorted(self._catalog.ids[r] for r in near)  # not by row: rows are numbered anew where a vault is opened
        around = [f"{id}:{self._catalog.version(id)}" for id in ids]
        whole = "".join([*earlier, own, *later])
        return _Context(whole, (start, start + len(own)), " ".join([*around, *self._guard.masked_by(whole)]))

    # what is kept

    def _least(self, worth: tuple[int, float]) -> float:
        least, share = worth
        return max(least, share * len(self._catalog))

    def _keep(self) -> None:
        """Let the vault keep what the indexes are; until it is written, searches and changes go on."""
        with self._lock:
            self.refresh()  # what was deleted meanwhile must not be kept
            parts, change, self._unkept = self._packed(), self._read, 0
        try:
            self._vault.keep_index(self._layout, self._embedder.name, change, parts)
        except VaultError as error:
            log.warning("%s", error)

    def _restore(self) -> None:
        try:
            kept = self._vault.index(self._layout, self._embedder.name)
        except VaultError as error:
            log.warning("%s; the indexes are built from the memories", error)
            return
        if kept is not None:
            self._read, parts = kept
            self._unpack(parts)
            self._unkept = 0

    def _packed(self) -> Parts:
        """What lives, and nothing of what is gone."""
        rows = self._catalog.living_rows
        place = np.full(len(self._catalog) + 1, -1)  # one more: where -1 points to
        place[rows] = np.arange(len(rows))
        return {
            "unread": place[sorted(self._unread)],
            "used": self._used.all[rows],
            "uses": np.array([self._uses]),
            **beneath("catalog", self._catalog.packed(rows, place)),
            **beneath("words", self._words.packed(rows, place)),
            **beneath("vectors", self._vectors.packed(rows, place)),
            **beneath("graph", self._graph.packed(place)),
            **beneath("hidden", self._hidden.packed(place)),
            **beneath("texts", pack([self._texts[row] for row in rows.tolist()])),
        }

    def _unpack(self, parts: Parts) -> None:
        self._seen.clear()
        self._catalog, self._texts = Catalog.unpacked(at("catalog", parts)), unpack(at("texts", parts))
        self._words, self._graph = KeywordIndex.unpacked(at("words", parts)), EntityGraph.unpacked(at("graph", parts))
        self._hidden = HiddenWords.unpacked(at("hidden", parts))
        self._vectors = VectorIndex.unpacked(at("vectors", parts), self._exact_ms)
        self._tokens = TokenIndex(self._embedder.dim, self._read_tokens)
        self._unread = set(parts["unread"].tolist()) - {-1}
        self._used, self._uses = Column.of(parts["used"]), int(parts["uses"][0])
        self._versions.clear()

    # searching

    def search(
        self,
        query: str,
        k: int,
        view: View,
        score: Score = PLAIN_RAG.score,
        about: Sequence[str] = (),
        asks: Sequence[Fact] = (),
    ) -> list[Found]:
        """The k memories in view that score best, best first; among equals, the older. Raises InputError.

        about: subjects that the query is about. asks: facts, with blanks, that it asks for.
        """
        query = _readable(query)
        with self._lock:
            self.refresh()
            seen = self._look(view)
            if k < 1 or not len(seen.rows):
                return []
            whole, query = query, self._guard.shown(query)
            speakers, rest = self._speakers(query, seen)
            [(vector, tokens)] = self._embedder.read([rest])
            matches = self._matches(query, whole, seen)
            stating = self._graph.stating(asks, seen.mask)
            rows, signals = self._signals(vector, matches, speakers, about, stating, seen)
            best = _best(score(signals), rows, max(k, COMPARED if self._rerank else self._compared))
            rows = rows[best]
            answers = np.zeros(len(rows), np.float32)
            if self._rerank:
                answers = self._rerank(query, [self._texts[row] for row in rows])
            compared = self._tokens.compare(tokens, rows.tolist()) if self._compared else signals.tokens[best]
            signals = signals.at(best, answers=answers, tokens=compared)
            scores = score(signals)
            best = _best(scores, rows, k)
            ids = (self._catalog.ids[row] for row in rows[best].tolist())
            return list(map(Found, ids, scores[best].tolist(), signals.told(best)))

    def in_view(self, view: View, *, afresh: bool = True) -> tuple[int, int]:
        """How many memories there are in view, and in all. afresh: False for as many as the last search looked at."""
        with self._lock:
            if afresh:
                self.refresh()
            return len(self._look(view).rows), len(self._catalog) - self._catalog.gone

    def steady(self) -> AbstractContextManager[object]:
        """Within it, what is asked of the operator is all of one change, the one that `read` tells."""
        return self._lock

    @property
    def read(self) -> int:
        """The vault's last change that has been read."""
        return self._read

    def versions(self, view: View) -> Mapping[str, int]:
        """The memories in view with their versions."""
        with self._lock:
            self.refresh()
            if view not in self._versions:
                ids = [self._catalog.ids[row] for row in self._look(view).rows.tolist()]
                self._versions[view] = {id: self._catalog.version(id) for id in ids}
            return self._versions[view]

    def vectors(self, ids: Iterable[str]) -> dict[str, Floats]:
        """The vector of each of these that there is, in its context."""
        with self._lock:
            rows = {id: self._catalog.row(id) for id in ids if id in self._catalog}
            return dict(zip(rows, self._vectors.at(list(rows.values())), strict=True))

    def read_query(self, query: str) -> tuple[Floats, frozenset[str]]:
        """A query as vector and terms. Raises InputError."""
        query = _readable(query)
        [(vector, _)] = self._embedder.read([self._guard.shown(query)])
        return vector, frozenset(terms(query, query=True))

    def group_of(self, ids: Iterable[str], view: View) -> list[str]:
        """The memories in view of the same topic groups as these."""
        with self._lock:
            near = [self._catalog.row(id) for id in ids if id in self._catalog]
            return [self._catalog.ids[row] for row in self._catalog.in_groups(near, self._look(view).mask).tolist()]

    def _look(self, view: View) -> _Seen:
        if view not in self._seen:
            mask = self._catalog.allowed(view)
            own = mask & self._catalog.owned(view.owner) if self._guard.hides else None
            rows, lengths = np.flatnonzero(mask), self._words.lengths
            by_thread = np.bincount(self._catalog.thread[rows], lengths[rows], minlength=1).astype(np.float32)
            threads = max(1, int(np.count_nonzero(by_thread)))
            mean = float(lengths[rows].mean()) if len(rows) else 0.0
            while len(self._seen) >= _VIEWS:
                self._versions.pop(oldest := next(iter(self._seen)), None)
                del self._seen[oldest]
            latest = rows[np.argsort(-self._catalog.said[rows], kind="stable")[:_BEST]]
            told = self._told(rows) if len(rows) <= _ALL else None
            speakers = frozenset(np.unique(self._catalog.speaker[rows]).tolist())
            thread_mean = float(by_thread.sum()) / threads
            self._seen[view] = _Seen(mask, own, rows, told, speakers, latest, mean, by_thread, threads, thread_mean)
        return self._seen[view]

    def _matches(self, query: str, whole: str, seen: _Seen) -> Matches:
        """Rows with the words of a query, and the caller's own by those, too, that are masked in either."""
        said = list(dict.fromkeys(terms(query, query=True)))
        found = self._words.matches(said, seen.mask)
        if seen.own is None:
            return found
        more = [word for word in dict.fromkeys(terms(whole, query=True)) if word not in said]
        found = found.beside(self._words.matches(more, seen.own))
        return found.joined(self._hidden.matches([*said, *more], seen.own)).first(len(said))

    def _speakers(self, query: str, seen: _Seen) -> tuple[list[int], str]:
        """Who of those in view is named, and the query without their names: they say little of what is looked for."""
        rest, named = query, []
        for code in self._catalog.named(query):
            if code in seen.speakers:
                named.append(code)
                rest = re.sub(rf"\b{re.escape(self._catalog.speakers.values[code])}(?:['’]s)?\b", "", rest, flags=re.I)
        rest = " ".join(rest.split())
        return named, rest if terms(rest) else query

    def _signals(
        self,
        vector: Floats,
        matches: Matches,
        speakers: Sequence[int],
        about: Sequence[str],
        stating: Rows,
        seen: _Seen,
    ) -> tuple[Rows, Signals]:
        """The candidates, and what speaks for each."""
        catalog = self._catalog
        words = matches.score(self._words.lengths, len(seen.rows), seen.mean)
        linked = self._graph.linked(about, self._hops, seen.mask)
        told = seen.told or self._told(self._candidates(vector, words, [*linked, *stating.tolist()], about, seen))
        beside = np.append(words, np.float32(0))[told.around]  # -1 is the last one
        around = sum(weight * of for weight, of in zip(_NEIGHBOURS, beside, strict=True))
        threads = matches.score(seen.thread_lengths, seen.threads, seen.thread_mean, catalog.thread)
        subjects = np.array([catalog.group(name) for name in about], np.int32)
        near = told.vectors @ vector
        now, speaker = time.time(), speakers[0] if len(speakers) == 1 else -1
        return told.rows, Signals(
            near=near,
            tokens=near,
            words=words[told.rows],
            around=np.asarray(around),
            thread=threads[told.thread],
            speaker=(told.speaker == speaker).astype(np.float32),
            subject=(told.subject == subjects[:, None]).any(0).astype(np.float32),
            states=told.among(stating.tolist(), np.ones(len(stating))),
            linked=told.among(linked, (1 / facts for facts in linked.values())),
            answers=np.zeros(len(told.rows), np.float32),
            question=told.question,
            length=told.length,
            age=now - told.said,
            idle=now - self._used.all[told.rows],
        )

    def _told(self, rows: Rows) -> _Told:
        catalog, around, before, after = self._catalog, [], rows, rows
        for _ in range(AROUND):
            before, after = catalog.step(before, catalog.before), catalog.step(after, catalog.after)
            around += [before, after]
        return _Told(
            rows,
            self._vectors.at(rows),
            np.stack(around),
            catalog.thread[rows],
            catalog.speaker[rows],
            catalog.subject[rows],
            catalog.asks[rows].astype(np.float32),
            (np.log1p(np.minimum(self._words.lengths[rows], _LONG)) - 2).astype(np.float32),
            catalog.said[rows],
        )

    def _lately(self, seen: _Seen) -> Rows:
        """Those used last of what is in view; looked for once until something is used again."""
        uses, of, rows = self._last_used
        if uses != self._uses or of is not seen:
            rows = seen.rows[np.argpartition(-self._used.all[seen.rows], _BEST)[:_BEST]]
            self._last_used = self._uses, seen, rows
        return rows

    def _candidates(
        self, vector: Floats, words: Floats, linked: Iterable[int], about: Sequence[str], seen: _Seen
    ) -> Rows:
        """The best of each index, the latest, and what was said around, ascending."""
        near = self._vectors.nearest(vector, _BEST, seen.mask)
        spoken_of = [row for name in about for row in self._catalog.of_group(name, seen.mask)[-_BEST:]]
        rows = np.concatenate(
            [
                _highest(words, _BEST),
                near,
                seen.latest,
                self._lately(seen),
                np.fromiter((*linked, *spoken_of), np.int64),
            ]
        )
        for step in (self._catalog.before, self._catalog.after):
            at = rows
            for _ in range(AROUND):
                at = self._catalog.step(at, step)
                rows = np.concatenate([rows, at[at >= 0]])
        rows = np.unique(rows)
        return rows[seen.mask[rows]]


def _readable(query: str) -> str:
    """As much of it as is looked at. Raises InputError where there is nothing."""
    if not query.strip():
        raise InputError("the query is empty, and a search needs words to compare; say what to look for")
    return query[:LONGEST]


def _words(cube: MemCube) -> list[str]:
    return [*terms(cube.header.speaker), *terms(cube.text)]


def _facts(cube: MemCube, shown: MemCube) -> Sequence[Fact]:
    """Those that are shown. A name that is masked is left blank: "[phone]" is not one that two could have in common."""
    if not (isinstance(cube.payload, Text) and isinstance(shown.payload, Text)):
        return ()
    if shown is cube:
        return cube.payload.facts
    pairs = zip(cube.payload.facts, shown.payload.facts, strict=True)
    blank = [{name: "" for name in ("subject", "object") if getattr(a, name) != getattr(b, name)} for a, b in pairs]
    return [fact.model_copy(update=gone) for fact, gone in zip(cube.payload.facts, blank, strict=True)]


def _best(scores: npt.NDArray[Any], rows: Rows, k: int) -> Rows:
    """Places of the k highest scores, best first; among equals the earlier row."""
    best: Rows = np.lexsort((rows, -np.asarray(scores)))[:k]
    return best


def _highest(scores: Floats, k: int) -> Rows:
    """Rows of the k highest that are above 0, or of all that are."""
    # more than k pieces reach the bound, and so do as many rows: few are left to be put in order
    pieces = scores[: len(scores) // _PIECE * _PIECE].reshape(-1, _PIECE).max(1)
    bound = -np.partition(-pieces, k)[k] if len(pieces) > k else 0
    rows = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    return rows[np.argpartition(-scores[rows], k)[:k]] if len(rows) > k else rows


@contextmanager
def _undisturbed(is_long: bool) -> Iterator[None]:
    """The collector of garbage would walk through all that is being built, again and again: a quarter of the time."""
    if not is_long or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
