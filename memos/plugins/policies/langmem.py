"""LangMem (langchain-ai/langmem): semantic, episodic and procedural memory, each kept by a manager in the background.

    exchange -> the memory manager, with what is known near it -> inserts, updates and deletions    semantic
    praise   -> what was asked, what was done, how it went                                          episodic
    feedback -> the instructions, written anew                                                      procedural
    idle     -> what says nearly the same is made one
    query    -> a page of facts and experiences, the instructions, further pages

After its documents ("Long-term memory in LLM applications"; no paper). With rules as writer, what a turn states is one
memory; it updates the one that it completes, deletes the one that it says is no longer so, and is left out where it is
known; an experience quotes three turns; the later instruction stands in place of the earlier on the same. What differs:
the prompt optimiser runs where a user instructs, not over many conversations; memories are found by words, too; a
deleted one is archived. `langmem-procedural` is without instructions, `langmem-episodic` without experiences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, MemCube
from memos.operation.policies.policy import asks, standing, terms
from memos.plugins.curators import blocks
from memos.plugins.curators.curator import (
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Merge,
    Revise,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import importance, said, says_change, sentences, shared_terms
from memos.plugins.curators.signals import Recalled

FACT, EXPERIENCE, INSTRUCTIONS = "semantic", "experience", "instructions"  # Header.kind
NEAREST = 10  # memories that the manager is shown
MAX_TURNS = 16
MAX_FACT = 240  # characters
SAME, ALIKE = 0.8, 0.25  # share of terms from which two say the same, and are about the same
WORTH = 2.0  # importance of a turn that is read
EARLIER, LATEST = 6, 100  # messages before praise that are looked at; memories that are compared when idle
_PRAISE = re.compile(
    r"\b(?:that (?:worked|helped|did it)|works now|perfect|exactly what i|great (?:answer|explanation)|very helpful"
    r"|that makes sense)\b|太好了|有用",
    re.IGNORECASE,
)


class Change(BaseModel):
    """turn: the number of the message that tells it, from 1. about: that of the memory that is changed; 0 for none."""

    operation: Literal["insert", "update", "delete"]
    turn: Annotated[int, Field(ge=1, le=MAX_TURNS)]
    about: Annotated[int, Field(ge=0, le=NEAREST)]
    text: Annotated[str, Field(max_length=MAX_FACT)]


class Changes(BaseModel):
    changes: Annotated[list[Change], Field(max_length=8)]


class Experience(BaseModel):  # LangMem's `Episode`
    observation: blocks.Sentence
    thoughts: blocks.Sentence
    action: blocks.Sentence
    result: blocks.Sentence


class LangMem(Curator):
    """episodic, procedural: without one, its memories are not made."""

    def __init__(self, episodic: bool = True, procedural: bool = True) -> None:
        self._episodic, self._procedural = episodic, procedural

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = turns[:MAX_TURNS]
        yield from _managed(turns, view, writer)
        users = [turn for turn in turns if turn.header.role != "assistant"]
        if self._episodic and any(_PRAISE.search(turn.words) for turn in users):
            yield from _learned(turns[0], view, writer)
        if self._procedural and (instructing := [turn for turn in users if standing(turn.words) == 1]):
            yield from _instructed(instructing, view, writer)

    def on_idle(self, view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        merged = set[str]()
        for one, other in combinations(view.memories(FACT)[-LATEST:], 2):
            if merged.isdisjoint((one.id, other.id)) and shared_terms(one.text, other.text) >= SAME:
                merged |= {one.id, other.id}
                yield Merge(ids=(one.id, other.id), text=max(one.text, other.text, key=len), kind=FACT)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        near = view.near(query, k, FACT, EXPERIENCE, score=blocks.by_words_and_meaning)
        return blocks.with_shown(near, blocks.shown(view, INSTRUCTIONS), k)


def _managed(turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
    known = view.at(*(one.id for one in view.near(" ".join(t.words[:300] for t in turns), NEAREST, FACT)))
    told = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(known, start=1))
    ask = (
        "Keep the memories up to date with the conversation: insert what is new and worth remembering as a sentence "
        "that stands alone, update a memory that it completes, delete one that it shows to be wrong. No change where "
        f"there is nothing.\n\nMemories:\n{told}\n\nConversation:\n{blocks.numbered(turns)}"
    )
    writing = Writing("manage", ask, Changes, lambda: Changes(changes=list(_by_rule(turns, known, view))[:8]))
    done = set[str]()  # a memory is changed once in a run
    for change in writer.fill(writing).changes:
        about = known[change.about - 1] if 0 < change.about <= len(known) else None
        if change.turn > len(turns) or (about and about.id in done):
            continue
        source, text = (turns[change.turn - 1].id,), change.text.strip()
        if about and change.operation == "delete":
            done.add(about.id)
            yield ForgetMemory(id=about.id, why=f"no longer so: {text:.80}")
        elif about and text and change.operation == "update":
            done.add(about.id)
            yield Revise(id=about.id, text=text, sources=source)
        elif text and change.operation == "insert":
            yield Keep(text=text, kind=FACT, sources=source)


def _by_rule(turns: Sequence[MemCube], known: Sequence[MemCube], view: CuratorView) -> Iterator[Change]:
    for n, turn in enumerate(turns, start=1):
        if importance(said(turn)) < WORTH or turn.header.role == "assistant":
            continue
        stated = view.statements(turn)
        text = (" ".join(stated) if stated or asks(turn.words) else said(turn))[:MAX_FACT]
        share, about = max(((shared_terms(text, cube.text), m) for m, cube in enumerate(known, 1)), default=(0.0, 0))
        if text and share >= ALIKE and set(terms(text)) > set(terms(known[about - 1].text)):
            yield Change(operation="update", turn=n, about=about, text=text)
        elif text and share < SAME:
            if share >= ALIKE and says_change(text):
                yield Change(operation="delete", turn=n, about=about, text=text)
            yield Change(operation="insert", turn=n, about=0, text=text)


def _learned(praise: MemCube, view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
    """What came before praise: what was asked, and the last that was done."""
    thread = (one for one in view.memories(EPISODE) if one.header.thread == praise.header.thread)
    before = [one for one in thread if one.order < praise.order][-EARLIER:]
    done = next((one for one in reversed(before) if one.header.role == "assistant"), None)
    asked = next((one for one in reversed(before) if one.header.role != "assistant"), None)
    if not done or not asked:
        return

    def quoted() -> Experience:
        [observation, action, result] = (
            " ".join(one.words.split())[: blocks.MAX_LINE] for one in (asked, done, praise)
        )
        return Experience(observation=observation, thoughts="", action=action, result=result)

    ask = (
        "Write down for later what made this a success: what was observed, the thoughts that led to the right action, "
        f"the action, and its result.\n\n{blocks.numbered([*before, praise])}"
    )
    one = writer.fill(Writing("learn", ask, Experience, quoted))
    action = " ".join(filter(str.strip, (one.thoughts, one.action)))
    told = ((asked, "Observation", one.observation), (done, "Action", action), (praise, "Result", one.result))
    lines = [(turn.id, f"{name}: {text}") for turn, name, text in told if text.strip()]
    if lines:
        yield Keep(text="\n".join(text for _, text in lines), kind=EXPERIENCE, sources=tuple(id for id, _ in lines))


def _instructed(turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
    block = next(iter(blocks.shown(view, INSTRUCTIONS)), None)
    known = blocks.lines_of(block)
    messages = [*view.at(*(line.source for line in known)), *turns]

    def given() -> blocks.Digest:
        lines = [(line.source, line.text) for line in known]
        for turn in turns:
            for text in (one[: blocks.MAX_LINE] for one in sentences(turn.words[:2_000]) if standing(one) == 1):
                lines = [one for one in lines if shared_terms(one[1], text) < ALIKE] + [(turn.id, text)]
        place = {cube.id: n for n, cube in enumerate(messages, start=1)}
        lines = [one for one in lines if one[0] in place][-blocks.MAX_LINES :]
        return blocks.Digest(lines=[blocks.NumberedLine(message=place[id], text=text) for id, text in lines])

    ask = (
        "Write the instructions that you work by anew, from what users have said on how you should work: a line for "
        "each message that one follows from. They were:\n" + "\n".join(line.text for line in known)
    )
    yield from blocks.rewritten(block, blocks.digest(ask, messages, view, writer, given), INSTRUCTIONS)


def make(config: Config) -> LangMem:
    return LangMem()


def make_without_episodic(config: Config) -> LangMem:
    return LangMem(episodic=False)


def make_without_procedural(config: Config) -> LangMem:
    return LangMem(procedural=False)
