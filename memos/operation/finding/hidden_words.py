"""Words that stand in memories and not in what is shown of them, as those of an identifier that is masked: by these a
memory is found by its owner alone. Knows rows of the catalogue; must not know whose they are, nor why words are hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memos.operation.finding.column import Column
from memos.operation.finding.keyword_index import KeywordIndex, Matches, Rows
from memos.operation.finding.packing import Parts, at, beneath


class HiddenWords:
    """A keyword index of the few rows that have such words."""

    def __init__(self) -> None:
        self._words, self._rows = KeywordIndex(), Column(np.int64)

    def add(self, row: int, whole: Sequence[str], shown: Sequence[str]) -> None:
        """The terms of a memory, and of what is shown of it."""
        if hidden := Counter(whole) - Counter(shown):
            self._words.append(list(hidden.elements()))
            self._rows.append(row)

    def matches(self, query: Sequence[str], own: npt.NDArray[np.bool_]) -> Matches:
        """own: [rows], those whose hidden words may be compared."""
        found = self._words.matches(query, own[self._rows.all])
        return Matches([self._rows.all[rows] for rows in found.rows], found.counts)

    def packed(self, place: Rows) -> Parts:
        """place: [rows], where each moves to, or -1. Nothing where nothing is hidden."""
        rows = place[self._rows.all]
        kept = np.flatnonzero(rows >= 0)
        if not len(kept):
            return {}
        moved = np.full(len(rows), -1)
        moved[kept] = np.arange(len(kept))
        return {"rows": rows[kept], **beneath("words", self._words.packed(kept, moved))}

    @classmethod
    def unpacked(cls, parts: Parts) -> HiddenWords:
        hidden = cls()
        if parts:
            hidden._words, hidden._rows = KeywordIndex.unpacked(at("words", parts)), Column.of(parts["rows"])
        return hidden
