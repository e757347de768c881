"""BM25 over rows of terms. Knows terms and rows; knows no texts, no cubes and no rights.

Written here rather than taken from a library, for three things that none of those measured gives together: numbers of
documents and lengths counted among the allowed rows alone, so that nobody's rare words are told by another's scores;
the scores of all rows and not of the best alone, so that a row can be judged by its neighbours; and groups of rows
scored as one text from the same postings. See docs/architecture.md.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memos.operation.column import Column

K1, B = 0.9, 0.4  # Anserini's defaults (Lin, Yang et al.), which suit short passages
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Matches:
    """Where the terms of a query occur among the allowed rows: one entry for each row and term.

    rows, term, count: [entries]. terms: how many the query has.
    """

    rows: Rows
    term: npt.NDArray[np.int64]
    count: Floats
    terms: int

    def score(self, groups: Rows, lengths: Floats, total: int, mean: float) -> tuple[Rows, Floats]:
        """BM25 of each group that occurs, as a share of the most that a text could reach: (groups, scores).

        groups: [entries], the group of each entry. lengths: of each group that may occur, in terms; total: how many
        groups there are, and mean: their mean length.
        """
        key = self.term * len(lengths) + groups
        order = np.argsort(key, kind="stable")  # nearly in order already, which this kind of sort makes use of
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        if not len(first):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        count = np.add.reduceat(self.count[order], first)
        term, group = np.divmod(key[order][first], len(lengths))
        found = np.bincount(term, minlength=self.terms)
        weight = np.log1p((total - found + 0.5) / (found + 0.5))
        norm = K1 * (1 - B + B * lengths[group] / max(mean, 1e-9))
        scores = np.bincount(group, weight[term] * count / (count + norm)) / max(weight.sum(), 1e-9)
        there = np.flatnonzero(scores)
        return there, scores[there].astype(np.float32)


class KeywordIndex:
    """For each term the rows that it occurs in, in the order of rows. A row is never taken out: it is not allowed."""

    def __init__(self) -> None:
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        self._lengths = Column(np.float32)

    @property
    def lengths(self) -> Floats:
        """[rows]: terms of each."""
        return self._lengths.all

    def append(self, terms: Sequence[str]) -> None:
        """The next row."""
        row = len(self._lengths)
        for term, count in Counter(terms).items():
            rows, counts = self._postings.setdefault(term, (array("i"), array("H")))
            rows.append(row)
            counts.append(min(count, 65_535))
        self._lengths.append(len(terms))

    def matches(self, query: Sequence[str], allowed: npt.NDArray[np.bool_]) -> Matches:
        """allowed: [rows]."""
        terms = list(dict.fromkeys(query))
        rows, term, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for n, word in enumerate(terms):
            if word in self._postings:
                at = np.frombuffer(self._postings[word][0], np.int32)
                here = allowed[at]
                rows.append(at[here].astype(np.int64))
                count.append(np.frombuffer(self._postings[word][1], np.uint16)[here].astype(np.float32))
                term.append(np.full(len(rows[-1]), n, np.int64))
        return Matches(np.concatenate(rows), np.concatenate(term), np.concatenate(count), max(1, len(terms)))
