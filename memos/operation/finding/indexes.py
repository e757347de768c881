"""The indexes over the vault's texts: adds a memory to all of them, drops it, and packs them.

Knows rows and what they say; must not know where memories are stored, nor who looks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memos.cube import Fact, MemCube, State, Text
from memos.operation.finding.catalog import Catalog
from memos.operation.finding.columns import Column, Floats, Parts, at, beneath, pack, unpack
from memos.operation.finding.entity_graph import EntityGraph
from memos.operation.finding.keyword_index import HiddenWords, KeywordIndex
from memos.operation.finding.vector_index import Coarse, TokenIndex, VectorIndex
from memos.operation.policies.policy import terms

ReadTokens = Callable[[Iterable[str]], Mapping[str, Coarse]]  # ids -> the tokens of each that has any
MAX_WINDOW_CHARS, MAX_BEFORE_CHARS = 500, 200  # of texts that are embedded together, and of those before them
MIN_BULK_ROWS = 4096  # from which an index of words is built in bulk


@dataclass(frozen=True)
class Context:
    """A text with what was said around it: where it stands therein, and versions of the others."""

    text: str
    span: tuple[int, int]
    around: str


class Indexes:
    """One row for each memory, in every index at the same place."""

    def __init__(self, dim: int, exact_ms: float, read_tokens: ReadTokens) -> None:
        """dim, exact_ms: see VectorIndex."""
        self._dim, self._read_tokens = dim, read_tokens
        self.catalog, self.words, self.graph, self.hidden = Catalog(), KeywordIndex(), EntityGraph(), HiddenWords()
        self.vectors = VectorIndex(dim, exact_ms)
        self.tokens = TokenIndex(dim, self._tokens_of)
        self.texts: list[str] = []  # of each row, for its neighbours' contexts
        self.used = Column(np.float64)  # of each row: its last use, or its keeping, in seconds since 1970
        self.cold = Column(np.bool_)  # of each row
        self.uses = 0  # the vault's last use that is in here
        self.unread = set[int]()  # rows without a vector that is known to hold

    def add(self, cubes: Sequence[MemCube], shown: Mapping[str, MemCube]) -> None:
        """Rows for these versions, in place of earlier ones. shown: of each, by id, what may be shown of it."""
        for cube in cubes:
            self.drop(cube.id)
            self._add(cube, shown[cube.id])
        words = (_words(shown[cube.id]) for cube in cubes)
        if len(cubes) > max(MIN_BULK_ROWS, len(self.words.lengths)):
            self.words.extend(words)
        else:
            for of_text in words:
                self.words.append(of_text)

    def _add(self, cube: MemCube, shown: MemCube) -> None:
        """A row in every index but that of words; it and the rows whose context it changes are to be read."""
        row = self.catalog.add(cube, shown)
        self.vectors.append(np.zeros(self._dim, np.float32))
        self.texts.append(shown.words)
        self.used.append((cube.usage.last_recalled or cube.header.created).timestamp())
        self.cold.append(cube.state is State.COLD)
        self.graph.add(row, _facts(cube, shown))
        if shown is not cube:
            self.hidden.add(row, _words(cube), _words(shown))
        self.unread |= {row, *self._near(row)}

    def drop(self, id: str) -> None:
        """An id without a row is passed over; the rows whose context it was in are to be read again."""
        if id not in self.catalog:
            return
        row = self.catalog.row(id)
        self.unread |= set(self._near(row)) - {row}
        self.texts[row] = ""
        self.tokens.drop(row)
        self.catalog.drop(id)

    def place(self, row: int, vector: Floats) -> None:
        """The vector of a row in its present context, which is read with it."""
        self.vectors.replace(row, vector)
        self.tokens.drop(row)
        self.unread.discard(row)

    def context(self, row: int, masked_by: Callable[[str], Iterable[str]]) -> Context:
        """A text in the window that it is read in; all texts of a window have the same. masked_by: what masks a text,
        which is part of its version."""
        before, rows = self.catalog.window(row, self._size, MAX_WINDOW_CHARS, MAX_BEFORE_CHARS)
        start, parts = 0, list[str]()
        for other in (*before, *rows):
            if other == row:
                start = sum(map(len, parts)) + len(parts)
            parts.append(self.texts[other])
        whole = " ".join(parts)
        ids = sorted(self.catalog.ids[r] for r in (*before, *rows) if r != row)  # not by row: these are numbered anew
        around = [f"{id}:{self.catalog.version_of(id)}" for id in ids]
        return Context(whole, (start, start + len(self.texts[row])), " ".join([*around, *masked_by(whole)]))

    def _size(self, row: int) -> int:
        return len(self.texts[row])

    def _near(self, row: int) -> list[int]:
        return self.catalog.near(row, self._size, MAX_BEFORE_CHARS)

    def _tokens_of(self, rows: Sequence[int]) -> dict[int, Coarse]:
        found = self._read_tokens(self.catalog.ids[row] for row in rows)
        return {self.catalog.row(id): tokens for id, tokens in found.items()}

    def packed(self) -> Parts:
        """What lives, and nothing of what is gone."""
        rows = np.flatnonzero(self.catalog.alive.all)
        place = np.full(len(self.catalog) + 1, -1)  # one more: where -1 points to
        place[rows] = np.arange(len(rows))
        return {
            "unread": place[sorted(self.unread)],
            "used": self.used.all[rows],
            "cold": self.cold.all[rows],
            "uses": np.array([self.uses]),
            **beneath("catalog", self.catalog.packed(rows, place)),
            **beneath("words", self.words.packed(rows, place)),
            **beneath("vectors", self.vectors.packed(rows, place)),
            **beneath("graph", self.graph.packed(place)),
            **beneath("hidden", self.hidden.packed(place)),
            **beneath("texts", pack([self.texts[row] for row in rows.tolist()])),
        }

    @classmethod
    def unpacked(cls, parts: Parts, dim: int, exact_ms: float, read_tokens: ReadTokens) -> Indexes:
        made = cls(dim, exact_ms, read_tokens)
        made.catalog, made.texts = Catalog.unpacked(at("catalog", parts)), unpack(at("texts", parts))
        made.words, made.graph = KeywordIndex.unpacked(at("words", parts)), EntityGraph.unpacked(at("graph", parts))
        made.hidden = HiddenWords.unpacked(at("hidden", parts))
        made.vectors = VectorIndex.unpacked(at("vectors", parts), exact_ms)
        made.unread = set(parts["unread"].tolist()) - {-1}
        made.used, made.cold, made.uses = Column.of(parts["used"]), Column.of(parts["cold"]), int(parts["uses"][0])
        return made


def _words(cube: MemCube) -> list[str]:
    return [*terms(cube.header.speaker), *terms(cube.words)]


def _facts(cube: MemCube, shown: MemCube) -> Sequence[Fact]:
    """Those that are shown. A name that is masked is left blank: "[phone]" is not one that two could have in common."""
    if not (isinstance(cube.payload, Text) and isinstance(shown.payload, Text)):
        return ()
    if shown is cube:
        return cube.payload.facts
    pairs = zip(cube.payload.facts, shown.payload.facts, strict=True)
    blank = [{name: "" for name in ("subject", "object") if getattr(a, name) != getattr(b, name)} for a, b in pairs]
    return [fact.model_copy(update=gone) for fact, gone in zip(cube.payload.facts, blank, strict=True)]
