"""Mem0 (arXiv 2504.19413): facts are extracted from each exchange and held against the nearest that are known.

    exchange -> extract -> facts -> for each the s nearest -> ADD, UPDATE, DELETE or NOOP        (section 2.1)

With rules as writer, the reader's statements and what else a turn claims are the facts, and what is done with one
follows from what it says of the nearest: the same words are a NOOP, one that contains another updates it, one of the
same subject that is said to have changed deletes it, anything else is added. What differs from the paper: no summary of
the whole conversation goes into the extraction, and a deleted fact is archived, so that it can be asked for and brought
back.

`mem0-graph` (section 2.2) also links facts that name the same entity, and finds along these links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import STOP, terms
from memos.plugins.curators.curator import (
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Link,
    Revise,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import claims, line, says_change, shared_terms
from memos.plugins.curators.signals import Recalled

FACT = "extracted fact"  # Header.kind
FACT_CHARS = 240  # of a fact
NEAREST = 10  # s of the paper: memories that a fact is held against
EARLIER = 10  # m: messages before the exchange that the extraction is shown
SAME = 0.9  # share of terms from which two facts say the same
NEAR = 0.6  # cosine from which a fact may change another
_ENTITY = re.compile(r"\b[A-Z][a-z]{2,}\b")

Sentence = Annotated[str, Field(max_length=FACT_CHARS)]


class ExtractedFacts(BaseModel):
    """What the extraction gives."""

    facts: Annotated[list[Sentence], Field(max_length=6)]


class FactChange(BaseModel):
    """What is done with one fact. about: the number of the memory that it changes, from 1; 0 for none."""

    operation: Literal["ADD", "UPDATE", "DELETE", "NOOP"]
    about: Annotated[int, Field(ge=0, le=NEAREST)]
    text: Sentence


class Mem0(Curator):
    """graph: facts are linked by the entities that they name."""

    def __init__(self, graph: bool = False) -> None:
        self._graph = graph

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        facts = writer.fill(
            Writing("extract facts", _extract(turns, view), ExtractedFacts, lambda: _stated(turns, view))
        ).facts
        done = set[str]()  # a memory is changed once in a run
        for n, fact in enumerate(dict.fromkeys(f.strip() for f in facts if f.strip())):
            near = [one for one in view.near(fact, NEAREST, FACT) if one.id not in done]
            known = view.at(*(one.id for one in near))
            rule = partial(_by_rule, fact, known, near)
            change = writer.fill(Writing("choose an operation", _choose(fact, known), FactChange, rule))
            about = known[change.about - 1] if 0 < change.about <= len(known) else None
            sources = _telling(fact, turns)
            match change.operation:
                case "ADD":
                    yield Keep(text=change.text or fact, kind=FACT, sources=sources, name=f"#{n}")
                    if self._graph:
                        yield from _links(f"#{n}", change.text or fact, known)
                case "UPDATE" if about:
                    done.add(about.id)
                    yield Revise(id=about.id, text=change.text or fact, sources=sources)
                case "DELETE" if about:
                    done.add(about.id)
                    yield ForgetMemory(id=about.id, why=f"contradicted by: {fact:.80}")
                    yield Keep(text=fact, kind=FACT, sources=sources)
                case _:
                    pass

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        found = view.near(query, k, FACT)
        if not self._graph:
            return found
        return along_links(found, k, view)


def along_links(found: Sequence[Recalled], k: int, view: CuratorView) -> list[Recalled]:
    """The nearest, and in the last places what is linked to the first of them and was not found."""
    there = {one.id for one in found}
    beside = dict[str, Recalled]()
    for one in found[: k // 2]:
        for link in view.links(one.id):
            other = link.b if link.a == one.id else link.a
            if other not in there:
                beside.setdefault(other, Recalled(other, one.score / 2, {"linked": 1.0}))
    extra = list(beside.values())[: k // 4]
    return [*found[: k - len(extra)], *extra]


def _stated(turns: Sequence[MemCube], view: CuratorView) -> ExtractedFacts:
    found = [one[:FACT_CHARS] for turn in turns for one in (*view.statements(turn), *claims(turn))]
    return ExtractedFacts(facts=_apart(found)[:6])


def _apart(facts: Sequence[str]) -> list[str]:
    """Without those that an earlier one says already."""
    kept = list[str]()
    for fact in facts:
        words = set(terms(fact.split(": ", 1)[-1]))  # but for who says it
        if not any(len(words & set(terms(one))) >= SAME * len(words) for one in kept):
            kept.append(fact)
    return kept


def _by_rule(fact: str, known: Sequence[MemCube], near: Sequence[Recalled]) -> FactChange:
    for n, (cube, one) in enumerate(zip(known, near, strict=True), start=1):
        if shared_terms(fact, cube.text) >= SAME:
            return FactChange(operation="NOOP", about=n, text="")
        words, others = set(terms(fact)), set(terms(cube.text))
        if one.score >= NEAR and words > others:
            return FactChange(operation="UPDATE", about=n, text=fact[:FACT_CHARS])
        if one.score >= NEAR and says_change(fact) and fact.split()[:1] == cube.text.split()[:1]:
            return FactChange(operation="DELETE", about=n, text="")
    return FactChange(operation="ADD", about=0, text=fact[:FACT_CHARS])


def _telling(fact: str, turns: Sequence[MemCube]) -> tuple[str, ...]:
    """The turn that says it: that with most of its words."""
    best = max(turns, key=lambda turn: len(set(terms(fact)) & set(terms(turn.words))))
    return (best.id,)


def _links(name: str, fact: str, known: Sequence[MemCube]) -> Iterator[Link]:
    """To the nearest facts that name an entity which this one names."""
    for one in known:
        if shared := _entities(fact) & _entities(one.text):
            yield Link(a=name, b=one.id, kind="names the same", weight=float(len(shared)))


def _entities(fact: str) -> set[str]:
    """Words written large, but for whoever said it."""
    return {word for word in _ENTITY.findall(fact.split(": ", 1)[-1]) if word.lower() not in STOP}


def _extract(turns: Sequence[MemCube], view: CuratorView) -> str:
    before = [one for one in view.memories("episode") if one.header.thread == turns[0].header.thread]
    earlier = [line(one) for one in before if one.order < turns[0].order][-EARLIER:]
    lines = "\n".join(line(turn) for turn in turns)
    return (
        "Which facts worth remembering does the new exchange state? Give each as a sentence that can be understood by "
        f"itself; none where there is none.\n\nEarlier:\n{chr(10).join(earlier)}\n\nNew:\n{lines}"
    )


def _choose(fact: str, known: Sequence[MemCube]) -> str:
    lines = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(known, start=1))
    return (
        "A new fact is held against the memories that are there. ADD it where it is new, UPDATE a memory that it "
        "completes, DELETE one that it contradicts, NOOP where it is known. Give the memory's number, 0 for none, and "
        f"the text that is to stand there.\n\nFact: {fact}\n\nMemories:\n{lines}"
    )


def make(config: Config) -> Mem0:
    return Mem0()


def make_graph(config: Config) -> Mem0:
    return Mem0(graph=True)
