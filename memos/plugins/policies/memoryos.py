"""The policy of MemoryOS (arXiv 2506.06326): short, middle and long term by rules, and a prompt joined of all three.

    note -> page -> STM, a queue -> the oldest page -> MTM, segments by F_score -> hot segments -> LPM
                                                       the coldest leaves          profile, knowledge, traits

A page is what one says and what another answers. What a model writes there in the paper (keywords, summaries, profile)
are rules here: everything is the notes themselves, so that no failed or invented text can become a memory, and a
deleted one leaves nothing behind. Knows no stores, no tensors, no rights.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from memos.config import Config, MemoryOSConfig
from memos.cube import Form, MemCube
from memos.operation.policies.policy import Floats, Note, Ranked, Reads, Recalled, Segment, Signals, as_one, asks, terms

_ASSISTANT = "assistant"  # the speaker whose statements are traits and no knowledge of the user


class MemoryOSPolicy:
    """Finds by its tiers, admits what they give, and moves text between them alone: it has no other form."""

    reads: Reads = "found"

    def __init__(self, config: MemoryOSConfig) -> None:
        self._config = config

    def tiers(self) -> MemoryOSTiers:
        return MemoryOSTiers(self._config)

    def score(self, signals: Signals) -> Floats:
        """By meaning, as within its segments."""
        return signals.near

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        """As the tiers gave them."""
        return list(hits)

    def admit(
        self, ranked: Ranked, groups: Sequence[Segment], need: Callable[[MemCube], int], room: int
    ) -> list[Segment]:
        """The three tiers joined, in canonical order: a later statement wins, whichever tier it is in."""
        return as_one([cube for cube, _ in ranked], need, room)

    def heat(self, cubes: Sequence[MemCube], now: datetime) -> float:
        """Heat of a topic group: its most recalled memory, its size, its last use."""
        last = max(c.usage.last_recalled or c.header.created for c in cubes)
        return heat(self._config, max(c.usage.recalls for c in cubes), len(cubes), last, now)

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        return None

    def cold(self, heat: float) -> bool:
        return False


def make(config: Config) -> MemoryOSPolicy:
    return MemoryOSPolicy(config.memoryos)


def heat(config: MemoryOSConfig, visits: int, interaction: int, last: datetime, now: datetime) -> float:
    """α·N_visit + β·L_interaction + γ·R, with R = exp(-Δt/μ)."""
    recency = math.exp(-max(0.0, (now - last).total_seconds()) / config.mu_s)
    return config.alpha * visits + config.beta * interaction + config.gamma * recency


def f_score(vector: Floats, words: frozenset[str], other: Floats, others: frozenset[str]) -> float:
    """cos(a, b) + |A ∩ B| / |A ∪ B|, from -1 to 2, of two unit vectors and two sets of keywords."""
    shared = len(words & others)
    return float(vector @ other) + (shared / (len(words) + len(others) - shared) if shared else 0.0)


@dataclass(frozen=True)
class Page:
    """(query, response, time, chain): a note, with the other's answer where there is one.

    chain: number of the page that its chain of pages on one matter began with.
    """

    number: int
    query: Note
    response: Note | None = None
    chain: int = 0

    @property
    def notes(self) -> tuple[Note, ...]:
        return (self.query,) if self.response is None else (self.query, self.response)

    @property
    def vector(self) -> Floats:
        return _direction(np.sum([note.vector for note in self.notes], axis=0))

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word for note in self.notes for word in terms(note.text))


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


class MemoryOSTiers:
    """The three tiers of one namespace."""

    def __init__(self, config: MemoryOSConfig) -> None:
        self._config = config
        self.short: deque[Page] = deque()
        self.topics: dict[int, TopicSegment] = {}  # the middle, oldest first
        self.profile: dict[tuple[str, str], Note] = {}  # latest of each (subject, relation) of the one who speaks
        self.knowledge: deque[Note] = deque(maxlen=config.knowledge)
        self.traits: deque[Note] = deque(maxlen=config.traits)
        self._topic_of: dict[str, int] = {}  # of each note in the middle
        self._numbers = 0

    # what comes in

    def keep(self, note: Note) -> None:
        """Into the page that it answers, or a new one; the oldest page moves on where the queue is full."""
        last = self.short[-1] if self.short else None
        if last is not None and last.response is None and _answers(note, last.query):
            self.short[-1] = replace(last, response=note)
            return
        page = Page(self._next(), note)
        follows = last is not None and last.query.thread == note.thread and bool(last.words & page.words)
        self.short.append(replace(page, chain=last.chain if last is not None and follows else page.number))
        while len(self.short) > self._config.stm_pages:
            self._settle(self.short.popleft(), note.kept)

    def _settle(self, page: Page, now: datetime) -> None:
        """Into the one segment that it fits best, or one of its own; a full middle gives up its coldest first."""
        vector, words = page.vector, page.words
        near = self._nearest(vector, words, self.topics.values())
        best = near[0] if near else (0.0, None)
        topic = best[1] if best[0] > self._config.theta else None
        if topic is None:
            if len(self.topics) >= self._config.segments:
                self._evict(now)
            topic = TopicSegment(self._next(), now)
            self.topics[topic.number] = topic
        topic.pages.append(page)
        topic.fresh.append(page)
        topic.vectors.append(vector)
        topic.vector = _direction(np.sum(topic.vectors, axis=0))
        topic.words.update(words)
        most = sorted(topic.words, key=lambda word: (-topic.words[word], word))
        topic.keywords = frozenset(most[: self._config.keywords])
        topic.last = max(topic.last, now)
        self._topic_of |= {note.id: topic.number for note in page.notes}
        self._promote(topic, now)

    def _evict(self, now: datetime) -> None:
        """The coldest segment by its whole heat, of equals the oldest; the vault still has its memories."""
        coldest = min(self.topics.values(), key=lambda topic: self.heat(topic, now))
        del self.topics[coldest.number]
        for page in coldest.pages:
            for note in page.notes:
                del self._topic_of[note.id]

    def use(self, ids: Collection[str], when: datetime) -> None:
        """One visit to each segment that has a page of these."""
        for number in sorted({self._topic_of[id] for id in ids if id in self._topic_of}):
            topic = self.topics[number]
            topic.visits += 1
            topic.last = max(topic.last, when)
            self._promote(topic, when)

    def heat(self, topic: TopicSegment, now: datetime) -> float:
        return heat(self._config, topic.visits, len(topic.fresh), topic.last, now)

    def _promote(self, topic: TopicSegment, now: datetime) -> None:
        """What a hot segment has not told yet goes to the long term. Only the segment that just grew warmer is looked
        at, so that none stands in another's way."""
        if not topic.fresh or self.heat(topic, now) < self._config.tau:
            return
        for page in topic.fresh:
            for note in page.notes:
                self._learn(note)
        topic.fresh = []

    def _learn(self, note: Note) -> None:
        """The profile has facts of the one who speaks, each as it was said last; the rest is knowledge, or a trait of
        the assistant; questions say nothing."""
        if asks(note.text):
            return
        speaker = note.speaker.casefold()
        if speaker == _ASSISTANT:
            self.traits.append(note)
            return
        own = [(fact.subject.casefold(), fact.relation) for fact in note.facts if fact.subject.casefold() == speaker]
        if not own:
            self.knowledge.append(note)
        for key in own:
            before = self.profile.get(key)
            self.profile[key] = note
            if before is not None and before not in self.profile.values():
                self.knowledge.append(before)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    # what goes out

    def settled(self, id: str) -> bool:
        return all(note.id != id for page in self.short for note in page.notes)

    def revise(self, vectors: Mapping[str, Floats]) -> None:
        def seen(note: Note) -> Note:
            return replace(note, vector=vectors.get(note.id, note.vector))

        self.short = deque(
            replace(page, query=seen(page.query), response=page.response and seen(page.response)) for page in self.short
        )

    def recall(self, vector: Floats, words: frozenset[str], allowed: Collection[str]) -> list[Recalled]:
        """All of the queue; the whole profile; the best pages of the best segments; what is near of the rest."""
        found: dict[str, Recalled] = {}

        def give(notes: Iterable[Note], **why: float) -> None:
            for note in notes:
                if note.id in allowed and note.id not in found:
                    near = float(note.vector @ vector)
                    found[note.id] = Recalled(note.id, near, {"near": round(near, 4)} | why)

        give((note for page in reversed(self.short) for note in page.notes), short=1)
        give(self.profile.values(), profile=1)
        for score, page in self._pages(vector, words, allowed):
            give(page.notes, middle=1, f_score=round(score, 4), chain=page.chain)
        give(self._near(self.knowledge, vector, allowed), knowledge=1)
        give(self._near(self.traits, vector, allowed), traits=1)
        return list(found.values())

    def _pages(self, vector: Floats, words: frozenset[str], allowed: Collection[str]) -> Iterator[tuple[float, Page]]:
        """Two stages: segments by F_score, then their pages by meaning; what is not allowed takes nobody's place."""

        def visible(page: Page) -> bool:
            return any(note.id in allowed for note in page.notes)

        open_to = (topic for topic in self.topics.values() if any(map(visible, topic.pages)))
        pages = [
            (float(one @ vector), score, page)
            for score, topic in self._nearest(vector, words, open_to)[: self._config.top_segments]
            for one, page in zip(topic.vectors, topic.pages, strict=True)
            if visible(page)
        ]
        pages.sort(key=lambda row: (-row[0], row[2].number))
        return ((score, page) for _, score, page in pages[: self._config.top_pages])

    def _near(self, notes: Iterable[Note], vector: Floats, allowed: Collection[str]) -> list[Note]:
        seen = [note for note in notes if note.id in allowed]
        return sorted(seen, key=lambda note: -float(note.vector @ vector))[: self._config.top_knowledge]

    def _nearest(
        self, vector: Floats, words: frozenset[str], topics: Iterable[TopicSegment]
    ) -> list[tuple[float, TopicSegment]]:
        """By F_score, best first; of equals the older."""
        scored = [(f_score(topic.vector, topic.keywords, vector, words), topic) for topic in topics]
        return sorted(scored, key=lambda row: -row[0])


def _answers(note: Note, query: Note) -> bool:
    """True if a note is what another one said next in the same conversation."""
    return bool(note.thread) and note.thread == query.thread and note.speaker.casefold() != query.speaker.casefold()


def _direction(vector: Floats) -> Floats:
    norm = float(np.linalg.norm(vector))
    return (vector / norm).astype(np.float32) if norm else vector
