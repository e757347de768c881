"""A-MEM (arXiv 2502.12110): each turn is a note that describes itself, is linked to near notes, and changes these.

    turn -> note: content, keywords, tags, context (3.1) -> near notes -> links (3.2) -> evolution of these (3.3)
    query -> nearest notes, and what is linked to them (3.4)

With rules as writer, the keywords are the turn's most frequent terms, the tags those of the exchange, and the context
is what the turn answers. Notes that are near and share a term are linked, and the near one gains the first tag of the
new one that it lacks. What differs from the paper: all parts of a note are one line of text, so that what is embedded
is what is read; links and evolution are one question to the model, as in the released code; and an evolved note rests
on the turns that have changed it, too, so that it goes with them.

`a-mem-links` is the ablation of sections 3.2 and 3.3: notes stay as they were made, alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import terms
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Link, Revise, Writer, Writing
from memos.plugins.curators.rules import as_written, line
from memos.plugins.curators.signals import Recalled

NOTE = "atomic note"  # Header.kind
LINKED = "related"  # kind of link
NEAREST = 5  # k of section 3.2: notes that a new one is held against
NEAR = 0.45  # cosine from which notes may be linked by rule
EVOLVED = 2  # notes that a new one changes by rule
MAX_KEYWORDS, MAX_TAGS = 4, 4
CONTEXT_CHARS = 120

Word = Annotated[str, Field(max_length=24)]
Sentence = Annotated[str, Field(max_length=CONTEXT_CHARS)]
_RESERVED = re.compile(r"[|;,\s]+")


class NoteAttributes(BaseModel):
    """What a note is described by."""

    keywords: Annotated[list[Word], Field(max_length=MAX_KEYWORDS)]
    tags: Annotated[list[Word], Field(max_length=MAX_TAGS)]
    context: Sentence


class NeighbourEvolution(BaseModel):
    """What a new note does to one that is near. neighbour: its number, from 1."""

    neighbour: Annotated[int, Field(ge=1, le=NEAREST)]
    linked: bool
    tags: Annotated[list[Word], Field(max_length=MAX_TAGS)]
    context: Sentence


class Evolution(BaseModel):
    """What it does to all of them."""

    neighbours: Annotated[list[NeighbourEvolution], Field(max_length=NEAREST)]


class NoteText(NamedTuple):
    """A note as its one line of text says it."""

    content: str
    keywords: tuple[str, ...]
    tags: tuple[str, ...]
    context: str

    @classmethod
    def of(cls, content: str, by: NoteAttributes) -> NoteText:
        keywords, tags = (tuple(dict.fromkeys(filter(None, map(_plain, words)))) for words in (by.keywords, by.tags))
        return cls(content.replace("|", "/"), keywords, tags, by.context.replace("|", "/").strip())

    @classmethod
    def read(cls, text: str) -> NoteText:
        content, keywords, tags, context = (*text.split(" | "), "", "", "")[:4]
        return cls(content, tuple(filter(None, keywords.split(", "))), tuple(filter(None, tags.split(", "))), context)

    def evolved(self, by: NeighbourEvolution) -> NoteText:
        tags = tuple(dict.fromkeys(filter(None, map(_plain, by.tags))))
        return self._replace(tags=tags or self.tags, context=by.context.replace("|", "/").strip() or self.context)

    def __str__(self) -> str:
        return " | ".join((self.content, ", ".join(self.keywords), ", ".join(self.tags), self.context)).rstrip(" |")


class AMem(Curator):
    """links: False for notes that are neither linked nor changed."""

    def __init__(self, links: bool = True) -> None:
        self._links = links

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = [turn for turn in turns if turn.words.strip()]
        described = writer.fill_all(
            [
                Writing("describe a note", _describe(turn), NoteAttributes, partial(_by_rule, turn, turns))
                for turn in turns
            ]
        )
        changed = set[str]()  # a note evolves once in a run
        for n, (turn, by) in enumerate(zip(turns, described, strict=True)):
            note = NoteText.of(line(turn), by)
            yield Keep(text=str(note), kind=NOTE, sources=(turn.id,), name=f"#{n}", speaker=turn.header.speaker)
            if self._links:
                yield from self._evolve(f"#{n}", note, turn, changed, view, writer)

    def _evolve(
        self, name: str, note: NoteText, turn: MemCube, changed: set[str], view: CuratorView, writer: Writer
    ) -> Iterator[CuratorOp]:
        near = view.near(str(note), NEAREST, NOTE)
        known = view.at(*(one.id for one in near))
        if not known:
            return
        rule = partial(_evolution, note, known, near)
        evolution = writer.fill(Writing("link and evolve", _ask_evolution(note, known), Evolution, rule))
        linked = set[str]()
        for one in evolution.neighbours:
            if one.neighbour > len(known) or (other := known[one.neighbour - 1]).id in linked:
                continue
            linked.add(other.id)
            if one.linked:
                yield Link(a=name, b=other.id, kind=LINKED, weight=max(0.0, near[one.neighbour - 1].score))
            evolved = str(NoteText.read(other.text).evolved(one))
            if evolved != other.text and other.id not in changed:
                changed.add(other.id)
                yield Revise(id=other.id, text=evolved, sources=(turn.id,))

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        found = view.near(query, k, NOTE)
        return _with_linked(found, view)[:k] if self._links else found


def _with_linked(found: Sequence[Recalled], view: CuratorView) -> list[Recalled]:
    """What is linked to a note that was found is as near as that one, times how near they are to each other."""
    near = {one.id: one.score for one in found}
    linked = dict[str, Recalled]()
    for link in view.links(*near):
        for one, other in ((link.a, link.b), (link.b, link.a)):
            score = near.get(one, 0.0) * link.weight
            if other not in near and score > (linked[other].score if other in linked else 0.0):
                linked[other] = Recalled(other, score, {"linked": link.weight})
    return sorted([*found, *linked.values()], key=lambda one: -one.score)


def _plain(words: str) -> str:
    """A keyword or tag without what separates these."""
    return _RESERVED.sub(" ", words).strip()


def _by_rule(turn: MemCube, turns: Sequence[MemCube]) -> NoteAttributes:
    own = [word[:24] for word in as_written(turn.words, MAX_KEYWORDS)]
    others = [word[:24] for one in turns for word in as_written(one.words, 2)]
    before = [one for one in turns if one.order < turn.order][-1:]
    tags = [word for word in dict.fromkeys(others) if word not in own][:2]
    return NoteAttributes(keywords=own, tags=tags, context=line(before[0], CONTEXT_CHARS) if before else "")


def _evolution(note: NoteText, known: Sequence[MemCube], near: Sequence[Recalled]) -> Evolution:
    """Near notes that share a term are linked; the nearest of them gain a tag."""
    out, words = list[NeighbourEvolution](), set(terms(note.content))
    for n, (cube, one) in enumerate(zip(known, near, strict=True), start=1):
        other = NoteText.read(cube.text)
        if one.score >= NEAR and words & set(terms(other.content)):
            new = [tag for tag in (*note.keywords, *note.tags) if tag not in (*other.keywords, *other.tags)]
            gained = new[:1] if len(out) < EVOLVED and len(other.tags) < MAX_TAGS else []
            tags = [*other.tags, *gained]
            out.append(NeighbourEvolution(neighbour=n, linked=True, tags=tags, context=other.context))
    return Evolution(neighbours=out)


def _describe(turn: MemCube) -> str:
    return (
        "Describe what was said, for a memory of notes: the keywords of it, the most important first; tags for the "
        f"subjects that it belongs to; and one sentence of context: what it is about, and why.\n\n{line(turn)}"
    )


def _ask_evolution(note: NoteText, known: Sequence[MemCube]) -> str:
    lines = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(known, start=1))
    return (
        "A new note comes to a memory of notes. Name those of the nearest that are to be linked with it, and give each "
        "the tags and the context that it should have now that the new one is known; leave out what stays as it is."
        f"\n\nNew: {note}\n\nNearest:\n{lines}"
    )


def make(config: Config) -> AMem:
    return AMem()


def make_without_links(config: Config) -> AMem:
    return AMem(links=False)
