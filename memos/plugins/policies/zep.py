"""Zep (arXiv 2501.13956), the engine of which is Graphiti: a graph in time of entities, facts and communities.

    exchange -> facts, the entities that they name, and since when they are true              (sections 2.2.1, 2.2.2)
             -> a fact that contradicts an older one ends it, which stays with the day of its end     (section 2.2.3)
    idle     -> communities of entities by label propagation, each with a summary               (section 2.3)
    query    -> cosine, BM25 and distance in the graph, joined by reciprocal rank fusion          (section 3)

The two times of a fact are numbers that are kept with it, `valid_at` and `invalid_at`, and the time of its links; the
system's time is that of its making, and `expired_at`, when it learnt of the end.

With rules as writer, a fact is a sentence that states something, its entities are the speaker and the names in it, and
one that speaks of a change ends the nearest older one of the same speaker; others are not compared. What differs from
the paper: an entity is its name, and what is known of it are its facts; those called the same are the same; communities
are made anew where their members change; in place of maximal marginal relevance, facts of other turns go first; an
entity that very many facts name brings none of them nearer, nor does one bring a fact nearer that has ended.

`zep-communities`: zep less its communities.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import Floats, terms
from memos.plugins.curators.curator import (
    Archive,
    Curator,
    CuratorOp,
    CuratorView,
    Keep,
    Link,
    Revise,
    Score,
    Summarise,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import (
    called,
    claims,
    communities,
    folded,
    fused,
    proper_names,
    said,
    says_change,
    spread,
    worded,
)
from memos.plugins.curators.signals import CuratorSignals, Recalled

FACT, ENTITY, COMMUNITY = "edge", "entity", "community"  # Header.kind
NAMES = "names"  # kind of the link from a fact to an entity
NEAREST = 10  # facts that a new one is held against
NEAR = 0.5  # cosine from which a fact may end another
COMMON = 50  # facts that name an entity, from which it tells them apart no more
SUMMED = 6  # facts in the summary of a community
Name = Annotated[str, Field(max_length=40)]
Sentence = Annotated[str, Field(max_length=200)]


class GraphFact(BaseModel):
    """A fact and what it is about."""

    fact: Sentence
    entities: Annotated[list[Name], Field(max_length=4)]


class GraphFacts(BaseModel):
    facts: Annotated[list[GraphFact], Field(max_length=8)]


class Contradicted(BaseModel):
    """Numbers of the facts that are not true any more, from 1."""

    facts: Annotated[list[Annotated[int, Field(ge=0, le=NEAREST)]], Field(max_length=3)]


class CommunitySummary(BaseModel):
    text: Annotated[str, Field(max_length=400)]


class Zep(Curator):
    """communities: those of entities are summed up."""

    def __init__(self, communities: bool = True) -> None:
        self._communities = communities

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        facts = writer.fill(Writing("extract facts", _extract(turns), GraphFacts, lambda: _stated(turns))).facts
        facts = [one for n, one in enumerate(facts) if one.fact.strip() and one.fact not in {f.fact for f in facts[:n]}]
        telling = [max(turns, key=lambda turn: len(set(terms(f.fact)) & set(terms(said(turn))))) for f in facts]
        entities = called([name for fact in facts for name in fact.entities], ENTITY, view)
        ended = set[str]()
        for n, (fact, turn) in enumerate(zip(facts, telling, strict=True)):
            since = turn.header.said or turn.header.created
            for old in self._contradicted(fact.fact, turn, view, writer, ended):
                ended.add(old.id)
                yield from _end(old, turn, since, view)
            times, who = {"valid_at": since.timestamp()}, turn.header.speaker
            yield Keep(text=fact.fact, kind=FACT, sources=(turn.id,), name=f"#f{n}", scores=times, speaker=who)
            for name in dict.fromkeys(n for n in map(folded, fact.entities) if n):
                if name not in entities:
                    entities[name] = f"#e{len(entities)}"
                    text = next(e.strip() for e in fact.entities if folded(e) == name)
                    yield Keep(text=text, kind=ENTITY, sources=(turn.id,), name=entities[name])
                yield Link(a=f"#f{n}", b=entities[name], kind=NAMES, since=since)

    def _contradicted(
        self, fact: str, turn: MemCube, view: CuratorView, writer: Writer, ended: set[str]
    ) -> list[MemCube]:
        if not (writer.is_model or says_change(fact)):
            return []
        near, over = view.near(fact, NEAREST, FACT), view.scores("invalid_at").keys() | ended
        old = [cube for cube in view.at(*(one.id for one in near)) if cube.id not in over]
        close = {one.id for one in near if one.score >= NEAR}

        def nearest() -> Contradicted:
            own = [n for n, cube in enumerate(old, start=1) if cube.header.speaker == turn.header.speaker]
            return Contradicted(facts=[n for n in own if old[n - 1].id in close][:1])

        lines = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(old, start=1))
        ask = f"Which of these facts are not true any more, if the new one is? Give numbers.\n\nNew: {fact}\n\n{lines}"
        numbers = writer.fill(Writing("find contradictions", ask, Contradicted, nearest)).facts if old else []
        return [old[n - 1] for n in dict.fromkeys(numbers) if 0 < n <= len(old)]

    def on_idle(self, view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        entities = {cube.id: cube for cube in view.memories(ENTITY)} if self._communities else {}
        ends = defaultdict[str, set[str]](set)
        for link in view.links(*entities) if entities else ():
            if link.kind == NAMES and link.b in entities:
                ends[link.a].add(link.b)
        named = {fact: frozenset(ids) for fact, ids in ends.items()}
        held = {frozenset(cube.header.tags): cube for cube in view.memories(COMMUNITY)}
        found = {frozenset(entities[id].text for id in ids): ids for ids in communities(named.values())}
        for members in sorted(held.keys() - found.keys(), key=sorted):
            yield Archive(id=held[members].id, why="its members have changed")
        for members in sorted(found.keys() - held.keys(), key=sorted):
            within = [fact for fact, of in named.items() if of <= found[members]]
            yield _summed(sorted(members), view.at(*within), writer)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        words = set(terms(query))
        asked = [cube.id for cube in worded(query, ENTITY, view) if set(terms(cube.text)) <= words]
        reached = Counter[str]()
        for entity in asked:
            facts = [link.a for link in view.links(entity) if link.kind == NAMES]
            reached.update(facts if len(facts) <= COMMON else ())

        def score(signals: CuratorSignals) -> Floats:
            hops = np.array([reached[id] for id in signals.plain.ids], np.float32)
            return fused(signals.plain.near, signals.plain.words, hops)

        found = spread(view.near(query, k, FACT, score=score), view)
        others = view.near(query, k // 8, ENTITY, *([COMMUNITY] if self._communities else []))
        return [*found[: k - len(others)], *others]


def _end(old: MemCube, turn: MemCube, when: datetime, view: CuratorView) -> Iterator[CuratorOp]:
    """It stays, with the time of its end."""
    yield Revise(id=old.id, text=f"{old.text} (until {when.date()})", sources=(turn.id,))
    yield Score(id=old.id, name="invalid_at", value=when.timestamp())
    yield Score(id=old.id, name="expired_at", value=view.now.timestamp())
    for link in view.links(old.id):
        yield Link(a=link.a, b=link.b, kind=link.kind, weight=link.weight, since=link.since, until=when)


def _summed(members: Sequence[str], facts: Sequence[MemCube], writer: Writer) -> Summarise:
    latest = sorted(facts, key=lambda cube: cube.order)[-SUMMED:]
    name, lines = ", ".join(members[:8]), "\n".join(cube.text for cube in latest)
    ask = f"Sum up in a few sentences what these facts say of {name}.\n\n{lines}"
    rule = CommunitySummary(text=f"{name}: {' '.join(cube.text for cube in latest)}"[:400])
    text = writer.fill(Writing("sum up a community", ask, CommunitySummary, lambda: rule)).text.strip() or name
    sources = dict.fromkeys(source.id for cube in latest for source in cube.sources[:1])
    return Summarise(text=text, kind=COMMUNITY, sources=tuple(sources), tags=tuple(members))


def _stated(turns: Sequence[MemCube]) -> GraphFacts:
    found = [
        GraphFact(fact=one[:200], entities=[e[:40] for e in (turn.header.speaker, *proper_names(one)) if e][:4])
        for turn in turns
        for one in claims(turn)
    ]
    return GraphFacts(facts=found[:8])


def _extract(turns: Sequence[MemCube]) -> str:
    lines = "\n".join(said(turn)[:2_000] for turn in turns)
    return (
        "Which facts does this exchange state? Give each as a sentence that can be understood by itself, with days in "
        f"place of 'yesterday', and the names of the people and things that it is about.\n\n"
        f"Said on {turns[-1].header.said or turns[-1].header.created:%Y-%m-%d}.\n{lines}"
    )


def make(config: Config) -> Zep:
    return Zep()


def make_less_communities(config: Config) -> Zep:
    return Zep(communities=False)
