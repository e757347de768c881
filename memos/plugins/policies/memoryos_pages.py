"""What MemoryOS's tiers are made of: pages, chains of pages, segments, and a query that is held against them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import numpy as np

from memos.operation.policies.policy import Floats, asks, terms
from memos.plugins.policies.tiers import Note

WORDS = 0.6  # of words beside meaning, where a query is compared
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
MAX_LINE = 160  # characters of what sums up a chain or a segment


@dataclass(frozen=True)
class Page:
    """(query, response, time, chain): a note, with the other's answer where there is one. parts: what was read in
    them, and parts of long ones.

    chain: number of the page that its chain of pages on one matter began with.
    """

    number: int
    query: Note
    response: Note | None = None
    chain: int = 0
    parts: tuple[Note, ...] = ()

    @property
    def turns(self) -> tuple[Note, ...]:
        return (self.query,) if self.response is None else (self.query, self.response)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self.turns, *self.parts)

    @cached_property
    def vector(self) -> Floats:
        return direction(np.sum([note.vector for note in self.turns], axis=0))

    @cached_property
    def words_of(self) -> dict[str, frozenset[str]]:
        """Of each note."""
        return {note.id: frozenset(terms(note.text)) for note in self.notes}

    @property
    def words(self) -> frozenset[str]:
        return frozenset().union(*(self.words_of[note.id] for note in self.turns))


class Chain:
    """Pages on one matter, with their meta-information."""

    def __init__(self, pages: Collection[Page]) -> None:
        self.vector = direction(np.sum([page.vector for page in pages], axis=0))
        counted = Counter(word for page in pages for word in page.words)
        self.words = frozenset(counted)
        self.line = telling(pages, counted)


@dataclass
class TopicSegment:
    """A segment of the middle tier: pages on one topic."""

    number: int
    last: datetime
    pages: list[Page] = field(default_factory=list)
    vectors: list[Floats] = field(default_factory=list)  # of each page
    vector: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # the direction of their sum
    words: Counter[str] = field(default_factory=Counter)  # pages that have each
    keywords: frozenset[str] = frozenset()
    visits: int = 0  # N_visit
    fresh: list[Page] = field(default_factory=list)  # since the last promotion; their number is L_interaction

    @property
    def summary(self) -> str:
        return telling(self.pages, self.words)


class Asked:
    """A query as it is compared. rare: how much each of its words counts, 1 in all."""

    def __init__(self, vector: Floats, words: frozenset[str], pages_with: Mapping[str, int], pages: int) -> None:
        self.vector, self.words = vector, words
        rare = {word: math.log1p((pages + 0.5) / (pages_with.get(word, 0) + 0.5)) for word in sorted(words)}
        self._rare = {word: weight / sum(rare.values()) for word, weight in rare.items()}

    def fits(self, vector: Floats, words: frozenset[str]) -> float:
        """Both terms of F_score, where a query's words count as they are rare: a question is short, and most of its
        words are in none of the others."""
        return float(vector @ self.vector) + WORDS * sum(self._rare[word] for word in sorted(self.words & words))


def telling(pages: Collection[Page], counts: Mapping[str, int]) -> str:
    """The sentence with most of what is frequent among the pages, of equals the first, without who is named; the square
    root keeps long ones from saying most. Questions say nothing."""
    said = [one for page in pages for note in page.turns for one in _SENTENCE.findall(note.text) if not asks(one)]

    names = {word for page in pages for note in page.turns for word in terms(note.speaker)}

    def worth(sentence: str) -> float:
        words = set(terms(sentence)) - names
        return sum(counts[word] for word in words) / math.sqrt(len(words) + 2)

    return max(said, key=worth)[:MAX_LINE].strip() if said else ""


def direction(vector: Floats) -> Floats:
    norm = float(np.linalg.norm(vector))
    return (vector / norm).astype(np.float32) if norm else vector
