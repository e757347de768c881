"""Scores rows by BM25 over their terms; knows no texts, no cubes and no rights.

Written here rather than taken from a library, for three things that none of those measured gives together: numbers of
documents and lengths counted among the allowed rows alone, so that nobody's rare words are told by another's scores;
the scores of all rows and not of the best alone, so that a row can be judged by its neighbours; and groups of rows
scored as one text from the same postings. See docs/decisions/0022-own-keyword-index.md.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memos.operation.finding.columns import Array, Column, Floats, Mask, Parts, Rows, at, beneath, pack, unpack

K1, B = 0.9, 0.4  # Anserini's defaults (Lin, Yang et al.), which suit short passages
Entries = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint16]]  # term, row, count
MAX_COUNT = 65_535


@dataclass(frozen=True)
class Matches:
    """For each term of a query the allowed rows that it occurs in, each once, and how often."""

    found: Sequence[tuple[Rows, Floats]]

    def beside(self, more: Matches) -> Matches:
        """These, and those of further terms."""
        return Matches([*self.found, *more.found])

    def first(self, terms: int) -> Matches:
        """Those of the first terms, and of the others that occur at all."""
        return Matches([*self.found[:terms], *(pair for pair in self.found[terms:] if len(pair[0]))])

    def joined(self, more: Matches) -> Matches:
        """These with other matches of the same terms; a row that is in both has as many as in both together."""
        pairs = zip(self.found, more.found, strict=True)
        return Matches([_together(*one, *other) if len(other[0]) else one for one, other in pairs])

    def score(self, lengths: Floats, total: int, mean: float, groups: Rows | None = None) -> Floats:
        """[groups]: BM25 of each, as a share of the most that a text could reach.

        lengths: [groups], in terms; total: how many groups there are, and mean: their mean length. groups: [rows], the
        group of each; without them, each row is its own.
        """
        scores, most = np.zeros(len(lengths), np.float32), 0.0
        for rows, counts in self.found:
            where = rows
            if groups is not None:
                together = np.bincount(groups[rows], counts, len(lengths))
                where = np.flatnonzero(together)
                counts = together[where].astype(np.float32)
            weight = math.log1p((total - len(where) + 0.5) / (len(where) + 0.5))
            norm = np.float32(K1 * (1 - B)) + np.float32(K1 * B / max(mean, 1e-9)) * lengths[where]
            scores[where] += np.float32(weight) * counts / (counts + norm)
            most += weight
        scores /= np.float32(max(most, 1e-9))
        return scores


def _together(rows: Rows, counts: Floats, others: Rows, of_others: Floats) -> tuple[Rows, Floats]:
    every, which = np.unique(np.concatenate([rows, others]), return_inverse=True)
    return every, np.bincount(which, np.concatenate([counts, of_others])).astype(np.float32)


class _Numbers(dict[str, int]):
    """Words -> 0, 1, 2 ... in the order of their first use."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class KeywordIndex:
    """For each term the rows that it occurs in, in the order of rows: those of many rows that came at once in one
    piece, then those that came one by one. A row is never taken out: it is not allowed."""

    def __init__(self) -> None:
        self._terms = _Numbers()
        self._ends = np.zeros(1, np.int64)  # [terms + 1], of the entries of each in one piece
        self._rows, self._counts = np.zeros(0, np.int32), np.zeros(0, np.uint16)
        self._late: dict[int, tuple[array[int], array[int]]] = {}
        self.lengths = Column(np.float32)  # of each row: how many terms

    def append(self, terms: Sequence[str]) -> None:
        """The next row."""
        row = len(self.lengths)
        for term, count in Counter(terms).items():
            rows, counts = self._late.setdefault(self._terms[term], (array("i"), array("H")))
            rows.append(row)
            counts.append(min(count, MAX_COUNT))
        self.lengths.append(len(terms))

    def extend(self, texts: Iterable[Sequence[str]]) -> None:
        """The next rows, all at once: many times faster where they are about as many as those that are there."""
        first, words, ends = len(self.lengths), array("i"), array("q")
        for terms in texts:
            words.extend(map(self._terms.__getitem__, terms))
            ends.append(len(words))
            self.lengths.append(0)
        lengths = np.diff(np.concatenate([np.zeros(1, np.int64), np.frombuffer(ends, np.int64)]))
        self.lengths.all[first:] = lengths
        of = np.repeat(np.arange(len(lengths)), lengths)
        key, count = np.unique(np.frombuffer(words, np.int32) * np.int64(len(lengths)) + of, return_counts=True)
        term, row = np.divmod(key, max(1, len(lengths)))
        self._place(self._entries(term, row + first, np.minimum(count, MAX_COUNT)))

    def _entries(self, *more: Array) -> Entries:
        """All that there are with these, in the order of terms and rows."""
        whole = np.repeat(np.arange(len(self._ends) - 1), np.diff(self._ends))
        pieces: list[tuple[Array, ...]] = [(whole, self._rows, self._counts)]
        for code, (rows, counts) in self._late.items():
            pieces.append((np.full(len(rows), code), np.frombuffer(rows, np.int32), np.frombuffer(counts, np.uint16)))
        if more:
            pieces.append(more)
        term, row, count = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        order = np.argsort(term, kind="stable") if len(pieces) > 1 else slice(None)
        return term[order].astype(np.int32), row[order].astype(np.int32), count[order].astype(np.uint16)

    def _place(self, entries: Entries) -> None:
        term, self._rows, self._counts = entries
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(term, minlength=len(self._terms)))])
        self._late = {}

    def packed(self, rows: Rows, place: Rows) -> Parts:
        """rows: those that are kept; place: [rows], where each moves to, or -1."""
        term, row, count = self._entries()
        living = place[row] >= 0
        term, row, count = term[living], place[row[living]].astype(np.int32), count[living]
        found = np.bincount(term, minlength=len(self._terms))
        terms = [word for word, n in zip(self._terms, found.tolist(), strict=True) if n]
        ends = np.concatenate([[0], np.cumsum(found[found > 0])])
        of_rows = {"ends": ends, "rows": row, "counts": count, "lengths": self.lengths.all[rows]}
        return of_rows | beneath("terms", pack(terms))

    @classmethod
    def unpacked(cls, parts: Parts) -> KeywordIndex:
        index, terms = cls(), unpack(at("terms", parts))
        index._terms.update(zip(terms, range(len(terms)), strict=True))
        index._ends, index._rows, index._counts = parts["ends"], parts["rows"], parts["counts"]
        index.lengths = Column.of(parts["lengths"])
        return index

    def matches(self, query: Sequence[str], allowed: Mask) -> Matches:
        """allowed: [rows]."""
        found = list[tuple[Rows, Floats]]()
        for rows, counts in map(self._postings, dict.fromkeys(query)):
            here = np.flatnonzero(allowed[rows])
            found.append((rows[here].astype(np.int64), counts[here].astype(np.float32)))
        return Matches(found)

    def _postings(self, word: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16]]:
        code = self._terms.get(word, -1)
        here = slice(*self._ends[code : code + 2]) if 0 <= code < len(self._ends) - 1 else slice(0)
        rows, counts = self._rows[here], self._counts[here]
        if code in self._late:
            late, times = self._late[code]
            rows = np.concatenate([rows, np.frombuffer(late, np.int32)])
            counts = np.concatenate([counts, np.frombuffer(times, np.uint16)])
        return rows, counts


class HiddenWords:
    """Words that stand in memories and not in what is shown of them, as those of an identifier that is masked: by these
    a memory is found by its owner alone. A keyword index of the few rows that have such words."""

    def __init__(self) -> None:
        self._words, self._rows = KeywordIndex(), Column(np.int64)

    def add(self, row: int, whole: Sequence[str], shown: Sequence[str]) -> None:
        """The terms of a memory, and of what is shown of it."""
        if hidden := Counter(whole) - Counter(shown):
            self._words.append(list(hidden.elements()))
            self._rows.append(row)

    def matches(self, query: Sequence[str], own: Mask) -> Matches:
        """own: [rows], those whose hidden words may be compared."""
        found = self._words.matches(query, own[self._rows.all])
        return Matches([(self._rows.all[rows], counts) for rows, counts in found.found])

    def packed(self, place: Rows) -> Parts:
        """place: [rows], where each moves to, or -1. Nothing where nothing is hidden."""
        rows = place[self._rows.all]
        living = np.flatnonzero(rows >= 0)
        if not len(living):
            return {}
        moved = np.full(len(rows), -1)
        moved[living] = np.arange(len(living))
        return {"rows": rows[living], **beneath("words", self._words.packed(living, moved))}

    @classmethod
    def unpacked(cls, parts: Parts) -> HiddenWords:
        hidden = cls()
        if parts:
            hidden._words, hidden._rows = KeywordIndex.unpacked(at("words", parts)), Column.of(parts["rows"])
        return hidden
