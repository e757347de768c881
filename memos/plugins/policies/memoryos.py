"""The policy of MemoryOS (arXiv 2506.06326): short, middle and long term by rules, and a prompt joined of all three.

    note -> page -> STM, a queue -> the oldest page -> MTM, segments by F_score -> hot segments -> LPM
                    of chains                                                      profile, knowledge, traits

A page is what one says and what another answers, with what was read in either. What a model writes there in the paper
(keywords, the meta-information of chains, summaries of segments, the profile) are rules here: everything is the notes
themselves, so that no failed or invented text can become a memory, and a deleted one leaves nothing behind.

A request is given what section 3.4 says: all of the queue, the best top_k pages of the best top_m segments, the whole
profile, and the nearest of knowledge and traits. A search for k memories gives the k best of the tiers, by
`_relevance`. For these it looks into more segments and pages than the paper does, SEARCHED times as many for each
top_pages of k: memories are counted there and no prompt is filled, and the first stage, which compares a short question
with a whole segment, passes over much. `memoryos-stm`, `-mtm`, `-lpm` and `-chain` go without one part each. Knows no
stores, no tensors, no rights.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

import numpy as np

from memos.config import Config, MemoryOSConfig
from memos.cube import Form, MemCube
from memos.operation.policies.policy import Floats, Ranked, Reads, Segment, Signals, as_one, asks, terms
from memos.plugins.curators.signals import Recalled
from memos.plugins.policies.memoryos_pages import WORDS, Asked, Chain, Page, TopicSegment, direction
from memos.plugins.policies.memoryos_profile import HIGH, Level, dimensions, level
from memos.plugins.policies.tiers import Note

Part = Literal["stm", "mtm", "lpm", "chain"]
PAGE, CHAIN = 0.33, 0.13  # of relevance: how a page and its chain fit, beside the note
SEARCHED = 8
TITLES = {  # of the parts of the prompt, in its order
    "traits": "What the assistant has said of itself and done:",
    "profile": "Profile of who speaks:",
    "knowledge": "Known besides:",
    "middle": "Earlier conversation on this:",
    "short": "The conversation just now:",
}
_ASSISTANT = "assistant"  # the speaker whose statements are traits and no knowledge of the user


class MemoryOSPolicy:
    """Finds by its tiers, admits what they give, and moves text between them alone: it has no other form."""

    reads: Reads = "found"

    def __init__(self, config: MemoryOSConfig, without: Part | None = None) -> None:
        self._config, self._without = config, without

    def tiers(self) -> MemoryOSTiers:
        return MemoryOSTiers(self._config, self._without)

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


def make(config: Config, without: Part | None = None) -> MemoryOSPolicy:
    return MemoryOSPolicy(config.memoryos, without)


without_stm, without_mtm = partial(make, without="stm"), partial(make, without="mtm")
without_lpm, without_chain = partial(make, without="lpm"), partial(make, without="chain")


def heat(config: MemoryOSConfig, visits: int, interaction: int, last: datetime, now: datetime) -> float:
    """α·N_visit + β·L_interaction + γ·R, with R = exp(-Δt/μ)."""
    recency = math.exp(-max(0.0, (now - last).total_seconds()) / config.mu_s)
    return config.alpha * visits + config.beta * interaction + config.gamma * recency


def f_score(vector: Floats, words: frozenset[str], other: Floats, others: frozenset[str]) -> float:
    """cos(a, b) + |A ∩ B| / |A ∪ B|, from -1 to 2, of two unit vectors and two sets of keywords."""
    shared = len(words & others)
    return float(vector @ other) + (shared / (len(words) + len(others) - shared) if shared else 0.0)


class MemoryOSTiers:
    """The three tiers of one namespace. without: the part that is switched off; a queue of one page is none, as the
    page that is talked about just now must lie somewhere, and without the middle, what leaves the queue goes to the
    long term at once."""

    def __init__(self, config: MemoryOSConfig, without: Part | None = None) -> None:
        self._config, self._without = config, without
        self.short: deque[Page] = deque()
        self.topics: dict[int, TopicSegment] = {}  # the middle, oldest first
        self.profile: dict[tuple[str, str], Note] = {}  # latest of each (subject, relation) of the one who speaks
        self.stated: dict[tuple[str, str], deque[Note]] = {}  # the latest of each (speaker, dimension)
        self.knowledge: deque[Note] = deque(maxlen=config.knowledge)
        self.traits: deque[Note] = deque(maxlen=config.traits)
        self._topic_of: dict[str, int] = {}  # of each note in the middle
        self._page_of: dict[str, Page] = {}  # of each note in the queue and the middle
        self._pages_with: Counter[str] = Counter()  # of these pages, by word
        self._chains: dict[int, dict[int, Page]] = {}  # of these pages, by the first's number and their own
        self._chain: dict[int, Chain] = {}  # with the meta-information, as far as it was asked for
        self._numbers = 0

    # what comes in

    def keep(self, note: Note) -> None:
        """Into the page that it is read in or answers, or a new one; the oldest page moves on where the queue is
        full."""
        last = self.short[-1] if self.short else None
        if whole := self._page_of.get(note.turn):
            self._grow(whole, parts=(*whole.parts, note))
            if (topic := self._topic(note.turn)) and all(page.number != whole.number for page in topic.fresh):
                self._learn(note, is_part=True)  # the page was promoted without it
            return
        if last is not None and last.response is None and _answers(note, last.query):
            self._grow(last, response=note)
            return
        page = Page(self._next(), note)
        follows = last is not None and last.query.thread == note.thread and bool(last.words & page.words)
        chained = last is not None and follows and self._without != "chain"
        page = replace(page, chain=last.chain if last is not None and chained else page.number)
        self.short.append(page)
        self._register(page)
        while len(self.short) > (1 if self._without == "stm" else self._config.stm_pages):
            self._leave(self.short.popleft(), note.kept)

    def _grow(self, page: Page, **more: Any) -> None:
        """The same page with more in it, wherever it lies."""
        grown, topic = replace(page, **more), self._topic(page.query.id)
        self._drop(page)
        if topic:
            self._topic_of |= {note.id: topic.number for note in grown.notes}
        for place in (self.short, *((topic.pages, topic.fresh) if topic else ())):
            for n, one in enumerate(place):
                if one.number == page.number:
                    place[n] = grown
        self._register(grown)

    def _register(self, page: Page) -> None:
        self._page_of |= {note.id: page for note in page.notes}
        self._pages_with.update(page.words)
        self._chains.setdefault(page.chain, {})[page.number] = page
        self._chain.pop(page.chain, None)

    def _drop(self, page: Page) -> None:
        for note in page.notes:
            del self._page_of[note.id]
            self._topic_of.pop(note.id, None)
        self._pages_with.subtract(page.words)
        del self._chains[page.chain][page.number]
        self._chain.pop(page.chain, None)

    def _topic(self, id: str) -> TopicSegment | None:
        return self.topics.get(self._topic_of.get(id, 0))

    def meta(self, page: Page) -> Chain:
        """The chain of a page in the queue or the middle, as it is now."""
        if page.chain not in self._chain:
            self._chain[page.chain] = Chain(self._chains[page.chain].values())
        return self._chain[page.chain]

    def _of_chain(self, number: int) -> list[str]:
        return [note.id for page in self._chains[number].values() for note in page.notes]

    def _leave(self, page: Page, now: datetime) -> None:
        if self._without == "mtm":
            self._drop(page)
            self._learn_page(page)
        else:
            self._settle(page, now)

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
        topic.vector = direction(np.sum(topic.vectors, axis=0))
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
            self._drop(page)

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
            self._learn_page(page)
        topic.fresh = []

    def _learn_page(self, page: Page) -> None:
        for note in page.turns:
            self._learn(note)
        for note in page.parts:
            self._learn(note, is_part=True)

    def _learn(self, note: Note, is_part: bool = False) -> None:
        """The profile has facts of the one who speaks, each as it was said last, and dimensions; the rest is knowledge,
        or a trait of the assistant; questions say nothing. is_part: its turn is learnt, too."""
        if self._without == "lpm" or asks(note.text):
            return
        speaker = note.speaker.casefold()
        if speaker == _ASSISTANT:
            if not is_part:
                self.traits.append(note)
            return
        for name in dimensions(note.text) if not is_part else ():
            self.stated.setdefault((speaker, name), deque(maxlen=HIGH)).append(note)
        own = [(fact.subject.casefold(), fact.relation) for fact in note.facts if fact.subject.casefold() == speaker]
        if not own and not is_part:
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

        for page in list(self.short):
            response = page.response and seen(page.response)
            self._grow(page, query=seen(page.query), response=response, parts=tuple(map(seen, page.parts)))

    def recall(
        self, vector: Floats, words: frozenset[str], allowed: Collection[str], k: int | None = None
    ) -> list[Recalled]:
        """All of the queue; the whole profile; the best pages of the best segments; what is near of the rest. With a
        k: of all these the best. Of a turn with what was read in it there is the first alone."""
        asked, found = Asked(vector, words, self._pages_with, len(self._page_of)), dict[str, Recalled]()
        times = SEARCHED * math.ceil(k / self._config.top_pages) if k else 1
        turns = dict[str, str]()  # of each

        def give(notes: Iterable[Note], **why: float) -> None:
            for note in notes:
                if note.id in allowed and note.id not in found:
                    near, turns[note.id] = float(note.vector @ vector), note.turn or note.id
                    score = near if k is None else self._relevance(asked, note)
                    found[note.id] = Recalled(note.id, score, {"near": round(near, 4)} | why)

        give((note for page in reversed(self.short) for note in page.notes), short=1)
        give(self.profile.values(), profile=1)
        for score, page in self._pages(asked, allowed, times):
            give(page.notes, middle=1, f_score=round(score, 4), chain=page.chain)
        give(self._near(self.knowledge, asked, allowed, times), knowledge=1)
        give(self._near(self.traits, asked, allowed, times), traits=1)
        best = dict[str, Recalled]()
        for one in found.values() if k is None else sorted(found.values(), key=lambda one: -one.score):
            best.setdefault(turns[one.id], one)
        return list(best.values())[:k]

    def _relevance(self, asked: Asked, note: Note) -> float:
        """How a note fits, and less so its page and its chain; from -1 to 1."""
        page = self._page_of.get(note.id)
        words = page.words_of[note.id] if page else frozenset(terms(note.text))
        own = asked.fits(note.vector, words)
        beside = self._page_fits(asked, page) if page else (PAGE + CHAIN) * own
        return (own + beside) / ((1 + PAGE + CHAIN) * (1 + WORDS))

    def _page_fits(self, asked: Asked, page: Page) -> float:
        meta = self.meta(page)
        return PAGE * asked.fits(page.vector, page.words) + CHAIN * asked.fits(meta.vector, meta.words)

    def _pages(self, asked: Asked, allowed: Collection[str], times: int) -> Iterator[tuple[float, Page]]:
        """Two stages: segments by F_score, then their pages by how they and their chains fit; what is not allowed takes
        nobody's place. times: as many as the paper takes."""

        def visible(page: Page) -> bool:
            return any(note.id in allowed for note in page.notes)

        open_to = (topic for topic in self.topics.values() if any(map(visible, topic.pages)))
        nearest = self._nearest(asked.vector, asked.words, open_to)[: times * self._config.top_segments]
        pages = [
            (self._page_fits(asked, page), score, page)
            for score, topic in nearest
            for page in filter(visible, topic.pages)
        ]
        pages.sort(key=lambda row: (-row[0], row[2].number))
        return ((score, page) for _, score, page in pages[: times * self._config.top_pages])

    def _near(self, notes: Iterable[Note], asked: Asked, allowed: Collection[str], times: int) -> list[Note]:
        seen = [note for note in notes if note.id in allowed]
        return sorted(seen, key=lambda note: -self._relevance(asked, note))[: times * self._config.top_knowledge]

    # what a model is shown

    def portrait(self, allowed: Collection[str]) -> dict[tuple[str, str], Level]:
        """The level of each (speaker, dimension) that allowed notes state."""
        there = {key: [note.text for note in notes if note.id in allowed] for key, notes in self.stated.items()}
        return {key: level(texts) for key, texts in there.items() if texts}

    def prompt(self, found: Sequence[Recalled], allowed: Collection[str]) -> str:
        """What was recalled for a request, in the parts of the paper's prompt; each in the order of its saying."""
        pages = [*self.short, *(page for topic in self.topics.values() for page in topic.pages)]
        notes = {note.id: note for note in (*self.knowledge, *self.traits, *self.profile.values())}
        notes |= {note.id: note for page in pages for note in page.turns}
        part = {one.id: next(tier for tier in TITLES if tier in one.why) for one in found if one.id in notes}
        lines: dict[str, list[str]] = {tier: [] for tier in TITLES}
        for id in sorted(part, key=lambda id: (notes[id].kept, id)):
            lines[part[id]].append(_line(notes[id]))
        lines["profile"] += [f"{who}: {name} ({how})" for (who, name), how in self.portrait(allowed).items()]
        chains = {page.chain: page for id, tier in part.items() if tier == "middle" and (page := self._page_of[id])}
        for number, page in chains.items():
            if (line := self.meta(page).line) and all(id in allowed for id in self._of_chain(number)):
                lines["middle"].append(f"In short: {line}")
        return "\n\n".join(f"{title}\n" + "\n".join(lines[tier]) for tier, title in TITLES.items() if lines[tier])

    def _nearest(
        self, vector: Floats, words: frozenset[str], topics: Iterable[TopicSegment]
    ) -> list[tuple[float, TopicSegment]]:
        """By F_score, best first; of equals the older."""
        scored = [(f_score(topic.vector, topic.keywords, vector, words), topic) for topic in topics]
        return sorted(scored, key=lambda row: -row[0])


def _answers(note: Note, query: Note) -> bool:
    """True if a note is what another one said next in the same conversation."""
    return bool(note.thread) and note.thread == query.thread and note.speaker.casefold() != query.speaker.casefold()


def _line(note: Note) -> str:
    return f"[{note.said or note.kept:%Y-%m-%d}] {note.speaker}: {note.text}"
