"""Finds memories by meaning, by words, and by what was said around them; knows no rights, states or budgets.

    query -> words and vector -> candidates of either index and their neighbours -> signals -> policy's score -> best

Who may see what arrives as a `View` and narrows every index before anything is ranked. The vault is the truth: what it
changed since the last call is read before each search, in this process or another. Vectors are kept there under the
embedder's name, so that a restart embeds nothing. A memory is ranked by what is shown of it, so that no score tells
what is masked; its owner's searches compare the words of that, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from memos.cube import Fact, State
from memos.errors import InputError
from memos.extensions import Registry
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding.catalog import AROUND, Catalog, View
from memos.operation.finding.columns import Floats, Mask, Rows
from memos.operation.finding.follower import Follower, TextEmbedder
from memos.operation.finding.indexes import Indexes
from memos.operation.finding.keyword_index import Matches
from memos.operation.finding.ordering import first_of_turns, highest, places_by_score, spread, with_turns
from memos.operation.finding.vector_index import Coarse, compare_tokens, lengths_of
from memos.operation.policies.policy import Score, Scores, Signals, terms
from memos.ops import Wants

Rerank = Callable[[str, Sequence[str]], Floats]  # query, texts -> how well each answers, 0 to 1
Sight = Callable[[str], Mapping[str, float]]  # query -> by id of a memory, how surely it tells of its picture, 0 to 1
SIGHTS: Registry[Callable[[str, MemVault], Sight]] = Registry("memos.sights", "encoder of pictures")
MAX_QUERY_CHARS = 20_000
MAX_ROWS_RANKED_WHOLE = 2048  # so few allowed rows are all candidates
MAX_PROPOSED = 100  # else: rows that each index proposes
MAX_COMPARED = 50  # of the best: those whose tokens are compared with the query's
MAX_CACHED_VIEWS = 8
OVERVIEW_FACTOR = 4  # times as many for an overview, which takes of every conversation
LONG_TERMS = 40  # from which a text counts as long as any
NEIGHBOUR_WEIGHTS = (0.5, 0.3, 0.3, 0.2)  # of the words of rows before and after: the nearest, the next


@dataclass(frozen=True)
class FoundMemory:
    """A memory found: its score, and the signals that it was given for."""

    id: str
    score: float
    why: dict[str, float]


@dataclass(frozen=True)
class _RowFacts:
    """What is known of some rows whatever the query is: one value for each."""

    rows: Rows  # ascending
    vectors: Floats  # [rows, dim]
    around: Rows  # [4, rows], of those before and after; -1 where there is none
    thread: Rows
    speaker: npt.NDArray[np.int32]
    subject: npt.NDArray[np.int32]
    question: Floats
    length: Floats
    said: npt.NDArray[np.float64]
    replies: Floats  # 1 where an assistant said it
    standing: Floats

    @classmethod
    def of_rows(cls, indexes: Indexes, rows: Rows) -> _RowFacts:
        catalog, around, before, after = indexes.catalog, [], rows, rows
        for _ in range(AROUND):
            before, after = catalog.step(before, catalog.before.all), catalog.step(after, catalog.after.all)
            around += [before, after]
        return cls(
            rows,
            indexes.vectors.at(rows),
            np.stack(around),
            catalog.thread.all[rows],
            catalog.speaker.all[rows],
            catalog.subject.all[rows],
            catalog.asks.all[rows].astype(np.float32),
            (np.log1p(np.minimum(indexes.words.lengths.all[rows], LONG_TERMS)) - 2).astype(np.float32),
            catalog.said.all[rows],
            catalog.replies.all[rows].astype(np.float32),
            catalog.standing.all[rows],
        )

    def among(self, rows: Iterable[int], values: Iterable[float]) -> Floats:
        """[rows]: these values for some of them, and 0 for the others."""
        found = np.zeros(len(self.rows), np.float32)
        found[np.searchsorted(self.rows, list(rows))] = list(values)
        return found


@dataclass(frozen=True)
class _Scope:
    """What a view looks at, counted once for all its searches between two changes."""

    mask: Mask
    own: Mask | None  # of these, those that are the caller's own; None where nothing is masked for anybody
    rows: Rows
    facts: _RowFacts | None  # of all rows, where they are few
    speakers: frozenset[int]
    latest: Rows
    mean: float  # terms of a row
    thread_lengths: Floats  # [threads]
    threads: int
    thread_mean: float

    @classmethod
    def of_view(cls, indexes: Indexes, view: View, hides: bool) -> _Scope:
        """hides: something is masked for everybody but its owner."""
        catalog, mask = indexes.catalog, indexes.catalog.allowed(view)
        rows, lengths = np.flatnonzero(mask), indexes.words.lengths.all
        by_thread = np.bincount(catalog.thread.all[rows], lengths[rows], minlength=1).astype(np.float32)
        threads = max(1, int(np.count_nonzero(by_thread)))
        return cls(
            mask=mask,
            own=mask & catalog.owned(view.owner) if hides else None,
            rows=rows,
            facts=_RowFacts.of_rows(indexes, rows) if len(rows) <= MAX_ROWS_RANKED_WHOLE else None,
            speakers=frozenset(np.flatnonzero(np.bincount(catalog.speaker.all[rows])).tolist()),
            latest=rows[np.argsort(-catalog.said.all[rows], kind="stable")[:MAX_PROPOSED]],
            mean=float(lengths[rows].mean()) if len(rows) else 0.0,
            thread_lengths=by_thread,
            threads=threads,
            thread_mean=float(by_thread.sum()) / threads,
        )


@dataclass(frozen=True)
class _Question:
    """A query as it is compared."""

    vector: Floats
    matches: Matches  # of its words
    speakers: Sequence[int]  # who is named
    about: Sequence[str]
    stating: Rows  # rows that state what it asks for
    seen: Mapping[int, float]  # by row, how surely it tells of its picture
    wants: Wants


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
        compared: int = MAX_COMPARED,
        ahead: bool = True,
        sight: Sight | None = None,
    ) -> None:
        """states: of cubes that can be found. exact_ms: vectors are compared one by one where that takes no longer.
        hops: facts that are followed from what a query is about. rerank: reads the best candidates beside the query.
        compared: of the best candidates, those whose tokens are compared with the query's; 0 for none. ahead: what
        changed is read in the background, and not just by the next search. sight: of pictures that memories tell of."""
        self._embedder, self._hops, self._rerank, self._compared = embedder, hops, rerank, compared
        self._sight, self._vectors = sight or (lambda query: {}), vault.vectors
        self._guard, self._follower = vault.guard, Follower(vault, embedder, states, exact_ms, ahead)
        self._lock = self._follower.lock
        self.refresh, self.refresh_soon = self._follower.refresh, self._follower.refresh_soon
        self.settle, self.close = self._follower.settle, self._follower.close
        # what was counted for each view, and the edition of the indexes that it was counted in
        self._scopes: dict[View, _Scope] = {}
        self._versions: dict[View, dict[str, int]] = {}
        self._edition = 0
        # those used last: as of which use, of what scope, and the rows
        self._last_used: tuple[int, _Scope | None, Rows] = (-1, None, np.zeros(0, np.int64))

    def search(
        self,
        query: str,
        k: int,
        view: View,
        score: Score = attrgetter("near"),  # by meaning alone
        about: Sequence[str] = (),
        asks: Sequence[Fact] = (),
        wants: Wants = Wants(),
    ) -> list[FoundMemory]:
        """The k memories in view that score best, best first; among equals, the older. Of one turn, with its parts and
        what was read in it, there is the best alone. Raises InputError.

        about: subjects that the query is about. asks: facts, with blanks, that it asks for. wants: how it asks; an
        overview takes the best of each conversation in turn.
        """
        whole = _readable(query)
        query = self._guard.shown(whole)
        self._embed(view)
        with self._lock:
            scope = self._scope(view)
            _, rest = self._speakers(query, scope)
        if k < 1 or not len(scope.rows):
            return []
        [(vector, tokens)], sight = self._embedder.read([rest]), self._sight(query)  # others do not wait: no lock
        with self._lock:
            scope, indexes = self._scope(view), self._follower.indexes
            if not len(scope.rows):
                return []
            speakers, _ = self._speakers(query, scope)  # by codes of these indexes, which may be others by now
            stating = indexes.graph.stating(asks, scope.mask)
            matches, seen = self._matches(query, whole, scope), self._seen(sight, scope)
            question = _Question(vector, matches, speakers, about, stating, seen, wants)
            rows, signals = self._signals(question, scope)
            compared_rows = MAX_COMPARED if self._rerank else self._compared
            best = places_by_score(score(signals), rows)
            looked_at = compared_rows * (OVERVIEW_FACTOR if wants.overview else 1)
            best = best[: max(with_turns(indexes.catalog, rows[best], k), looked_at)]
            rows = rows[best]
            texts = [indexes.texts[row] for row in rows] if self._rerank else []
            of_rows = indexes.tokens.of(rows.tolist()) if self._compared else []
        answers = self._rerank(query, texts) if self._rerank else np.zeros(len(rows), np.float32)
        near, compared = signals.near[best], compare_tokens(tokens, of_rows) if self._compared else signals.tokens[best]
        if self._compared and self._follower.has_replaced:
            before = self._replaced(indexes.catalog, rows, view.owner, vector, tokens)
            near, compared = np.maximum([near, compared], before)
        signals = signals.at(best, answers=answers, near=near, tokens=compared)
        scores = score(signals)
        best = places_by_score(scores, rows)
        with self._lock:  # its rows stay where they are, whatever has been dropped meanwhile
            catalog = indexes.catalog
            if view.enough is not None:
                best = best[_enough(indexes, rows[best], scores[best], view)]
            best = best[first_of_turns(catalog, rows[best])]
            if wants.overview:
                best = best[spread(catalog, rows[best], with_replies=not wants.side)]
            best = best[:k]
            ids = [catalog.ids[row] for row in rows[best].tolist()]
        return list(map(FoundMemory, ids, scores[best].tolist(), signals.by_name(best)))

    def _replaced(self, catalog: Catalog, rows: Rows, owner: str, vector: Floats, tokens: Coarse) -> Floats:
        """[2, rows]: how near a query is to what each of the owner's own has replaced, as a whole and by its tokens;
        who asks in the words of what held before is told what holds now."""
        ids, found = [catalog.ids[row] for row in rows.tolist()], np.full((2, len(rows)), -1, np.float32)
        for id, gone, read in self._vectors.of_replaced(self._embedder.name, ids):
            if catalog.owner(rows[place := ids.index(id)]) == owner:
                alike = gone @ vector, compare_tokens(tokens, [(read, lengths_of(read))])[0]
                found[:, place] = np.maximum(found[:, place], alike)
        return found

    def in_view(self, view: View, *, afresh: bool = True) -> tuple[int, int]:
        """How many memories there are in view, and in all. afresh: False for as many as the last search looked at."""
        with self._lock:
            scope = self._read(view) if afresh else self._scope(view)
            catalog = self._follower.indexes.catalog
            return len(scope.rows), len(catalog) - catalog.gone

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Within it, what is asked of the operator is all of one change, the one that `read` tells."""
        with self._follower.embedding, self._lock:
            yield

    @property
    def read(self) -> int:
        """The vault's last change that has been read."""
        return self._follower.read

    def versions(self, view: View) -> Mapping[str, int]:
        """The memories in view with their versions."""
        self._embed(view)
        with self._lock:
            scope, catalog = self._scope(view), self._follower.indexes.catalog
            if view not in self._versions:
                ids = [catalog.ids[row] for row in scope.rows.tolist()]
                self._versions[view] = {id: catalog.version_of(id) for id in ids}
            return self._versions[view]

    def conversations(self, view: View) -> list[list[str]]:
        """The memories in view of each conversation, in the order of their saying."""
        with self._lock:
            scope, catalog = self._read(view), self._follower.indexes.catalog
            return [[catalog.ids[row] for row in rows] for rows in catalog.conversations(scope.mask)]

    def telling(self, ids: Sequence[str], view: View) -> Floats:
        """[ids]: how much each says of what sets these apart from all in view, by BM25 of all their words, 0 to 1."""
        with self._lock:
            scope, indexes = self._scope(view), self._follower.indexes
            rows = [indexes.catalog.row(id) for id in ids]
            words = dict.fromkeys(word for row in rows for word in terms(indexes.texts[row]))
            found = indexes.words.matches(list(words), scope.mask)
            return found.score(indexes.words.lengths.all, len(scope.rows), scope.mean)[rows]

    def vectors(self, ids: Iterable[str]) -> dict[str, Floats]:
        """The vector of each of these that there is, in its context."""
        with self._lock:
            indexes = self._follower.indexes
            rows = {id: indexes.catalog.row(id) for id in ids if id in indexes.catalog}
            return dict(zip(rows, indexes.vectors.at(list(rows.values())), strict=True))

    def read_query(self, query: str, view: View) -> tuple[Floats, frozenset[str]]:
        """A query as vector, without who in view it names, and terms. Raises InputError."""
        query = _readable(query)
        with self._lock:
            _, rest = self._speakers(self._guard.shown(query), self._scope(view))
        [(vector, _)] = self._embedder.read([rest])
        return vector, frozenset(terms(query, query=True))

    def group_of(self, ids: Iterable[str], view: View) -> list[str]:
        """The memories in view of the same topic groups as these."""
        with self._lock:
            catalog = self._follower.indexes.catalog
            near = [catalog.row(id) for id in ids if id in catalog]
            return [catalog.ids[row] for row in catalog.in_groups(near, self._scope(view).mask).tolist()]

    def beside(self, ids: Iterable[str], view: View, next_to: Callable[[Catalog, int], int]) -> dict[str, str]:
        """For each the one next to it, as the catalogue tells by rows, as far as that is in view."""
        with self._lock:
            catalog, mask = self._follower.indexes.catalog, self._scope(view).mask
            rows = {id: next_to(catalog, catalog.row(id)) for id in ids if id in catalog}
            return {id: catalog.ids[row] for id, row in rows.items() if row >= 0 and mask[row]}

    def _read(self, view: View) -> _Scope:
        """What is in view, once that is read."""
        self._follower.catch_up()
        return self._scope(view)

    def _embed(self, view: View) -> None:
        """What is in view gets its vectors; what others have written may wait."""
        self.refresh(lambda: self._follower.indexes.catalog.allowed(view))

    def _scope(self, view: View) -> _Scope:
        if self._edition != self._follower.edition:
            self._edition = self._follower.edition
            self._scopes.clear()
            self._versions.clear()
        if view not in self._scopes:
            while len(self._scopes) >= MAX_CACHED_VIEWS:
                self._versions.pop(oldest := next(iter(self._scopes)), None)
                del self._scopes[oldest]
            self._scopes[view] = _Scope.of_view(self._follower.indexes, view, self._guard.hides)
        return self._scopes[view]

    def _matches(self, query: str, whole: str, scope: _Scope) -> Matches:
        """Rows with the words of a query, and the caller's own by those, too, that are masked in either."""
        indexes, shown = self._follower.indexes, list(dict.fromkeys(terms(query, query=True)))
        found = indexes.words.matches(shown, scope.mask)
        if scope.own is None:
            return found
        more = [word for word in dict.fromkeys(terms(whole, query=True)) if word not in shown]
        found = found.beside(indexes.words.matches(more, scope.own))
        return found.joined(indexes.hidden.matches([*shown, *more], scope.own)).first(len(shown))

    def _speakers(self, query: str, scope: _Scope) -> tuple[list[int], str]:
        """Who of those in view is named, and the query without their names: they say little of what is looked for."""
        catalog, rest, named = self._follower.indexes.catalog, query, []
        for code in catalog.named(query):
            if code in scope.speakers:
                named.append(code)
                name = re.escape(catalog.speakers.values[code])
                rest = re.sub(rf"\b{name}(?:['’]s)?\b", "", rest, flags=re.I)
        rest = " ".join(rest.split())
        return named, rest if terms(rest) else query

    def _seen(self, sight: Mapping[str, float], scope: _Scope) -> dict[int, float]:
        """By row in view. What others are shown masked, they are not shown: nothing tells them what is to be seen."""
        catalog, mask = self._follower.indexes.catalog, scope.mask if scope.own is None else scope.own
        rows = {catalog.row(id): sure for id, sure in sight.items() if id in catalog}
        return {row: sure for row, sure in rows.items() if mask[row]}

    def _signals(self, question: _Question, scope: _Scope) -> tuple[Rows, Signals]:
        """The candidates, and what speaks for each."""
        indexes, catalog = self._follower.indexes, self._follower.indexes.catalog
        words = question.matches.score(indexes.words.lengths.all, len(scope.rows), scope.mean)
        linked = indexes.graph.linked(question.about, self._hops, scope.mask)
        facts = scope.facts or _RowFacts.of_rows(indexes, self._candidates(question, words, linked, scope))
        beside = np.append(words, np.float32(0))[facts.around]  # -1 is the last one
        around = sum(weight * of_row for weight, of_row in zip(NEIGHBOUR_WEIGHTS, beside, strict=True))
        threads = question.matches.score(scope.thread_lengths, scope.threads, scope.thread_mean, catalog.thread.all)
        subjects = np.array([catalog.group(name) for name in question.about], np.int32)
        near = facts.vectors @ question.vector
        wants, none = question.wants, np.zeros(len(facts.rows), np.float32)
        now, speaker = time.time(), question.speakers[0] if len(question.speakers) == 1 else -1
        return facts.rows, Signals(
            near=near,
            tokens=near,
            words=words[facts.rows],
            around=np.asarray(around),
            thread=threads[facts.thread],
            speaker=(facts.speaker == speaker).astype(np.float32),
            subject=(facts.subject == subjects[:, None]).any(0).astype(np.float32),
            states=facts.among(question.stating.tolist(), np.ones(len(question.stating))),
            linked=facts.among(linked, (1 / hops for hops in linked.values())),
            answers=none,
            seen=facts.among(question.seen, question.seen.values()),
            other=facts.replies if wants.side == "user" else 1 - facts.replies if wants.side else none,
            standing=facts.standing if wants.request else none,
            ids=np.array([catalog.ids[row] for row in facts.rows.tolist()], object),
            question=facts.question,
            length=facts.length,
            age=now - facts.said,
            idle=now - indexes.used.all[facts.rows],
        )

    def _candidates(self, question: _Question, words: Floats, linked: Iterable[int], scope: _Scope) -> Rows:
        """The best of each index, the latest, and what was said around, ascending."""
        indexes, catalog = self._follower.indexes, self._follower.indexes.catalog
        near = indexes.vectors.nearest(question.vector, MAX_PROPOSED, scope.mask)
        groups = [row for name in question.about for row in catalog.of_group(name, scope.mask)[-MAX_PROPOSED:]]
        named = np.fromiter((*linked, *question.stating.tolist(), *question.seen, *groups), np.int64)
        standing = np.flatnonzero(scope.mask & (catalog.standing.all > 0)) if question.wants.request else named[:0]
        others = self._lately(scope), named, standing[-MAX_PROPOSED:]
        rows = np.concatenate([highest(words, MAX_PROPOSED), near, scope.latest, *others])
        for step in (catalog.before.all, catalog.after.all):
            reached = rows
            for _ in range(AROUND):
                reached = catalog.step(reached, step)
                rows = np.concatenate([rows, reached[reached >= 0]])
        rows = np.unique(rows)
        return rows[scope.mask[rows]]

    def _lately(self, scope: _Scope) -> Rows:
        """Those used last of what is in view; looked for once until something is used again."""
        indexes, (uses, last_scope, rows) = self._follower.indexes, self._last_used
        if uses != indexes.uses or last_scope is not scope:
            rows = scope.rows[np.argpartition(-indexes.used.all[scope.rows], MAX_PROPOSED)[:MAX_PROPOSED]]
            self._last_used = indexes.uses, scope, rows
        return rows


def _readable(query: str) -> str:
    """As much of it as is looked at. Raises InputError where there is nothing."""
    if not query.strip():
        raise InputError("the query is empty, and a search needs words to compare; say what to look for")
    return query[:MAX_QUERY_CHARS]


def _enough(indexes: Indexes, rows: Rows, scores: Scores, view: View) -> Mask:
    """[rows]: those that are not cold, if the best of them is good enough; else all but the summaries."""
    cold = indexes.cold.all[rows]
    if cold.any() and scores[~cold].max(initial=-np.inf) >= (view.enough or 0):
        return ~cold
    return ~indexes.catalog.summaries[rows] | (view.summaries or view.kinds is not None)
