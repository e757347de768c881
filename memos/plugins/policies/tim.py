"""Think-in-Memory (arXiv 2311.08719): thoughts on what was said are kept, not what was said, in groups by a hash.

    exchange -> inductive thoughts -> hash group -> insert, forget what they contradict, merge what says the same  (3.3)
    query -> its group -> the nearest thoughts there, then those of other groups                             (3.2, 3.4)

The hash is the paper's: F(x) = argmax [xR; -xR], with R random. With rules as writer, the thoughts are what the reader
states of each turn, and of one that states nothing its longest sentence that is no question; their head entity is who
says it. A new one of the same group and head entity replaces a near one where it says that something has changed; those
of the same terms are merged. What differs from the paper: there the group alone is searched, and a thought that the
hash puts elsewhere is lost; here other groups follow, a step behind. What is forgotten is archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import Floats, Scores, asks, terms
from memos.plugins.curators.curator import (
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Merge,
    Score,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import says_change, sentences, shared_terms
from memos.plugins.curators.signals import CuratorSignals, Recalled

THOUGHT = "thought"  # Header.kind
GROUP = "tim group"  # score of a thought: its hash
GROUPS = 4  # b of the paper
OTHER_GROUP = 0.02  # of cosine, by which other groups follow
NEAREST = 4  # thoughts of its group that a new one is held against
SAME = 0.8  # share of terms from which two thoughts say the same
NEAR = 0.55  # cosine from which one may contradict another
MAX_THOUGHTS = 6  # of an exchange
MAX_THOUGHT_CHARS = 240

ThoughtText = Annotated[str, Field(max_length=MAX_THOUGHT_CHARS)]


class InductiveThoughts(BaseModel):
    """What post-thinking gives."""

    thoughts: Annotated[list[ThoughtText], Field(max_length=MAX_THOUGHTS)]


class ThoughtPlacing(BaseModel):
    """How one thought is placed among those of its group. about: the number of one, from 1; 0 for none."""

    operation: Literal["INSERT", "FORGET", "MERGE"]
    about: Annotated[int, Field(ge=0, le=NEAREST)]
    text: ThoughtText


class ThinkInMemory(Curator):
    """Thinks after each exchange."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = [turn for turn in turns if turn.words.strip()]
        if not turns:
            return
        rule = partial(_thoughts, turns, view)
        found = writer.fill(Writing("think", _ask_thoughts(turns), InductiveThoughts, rule)).thoughts
        thoughts = list(dict.fromkeys(text for one in found if (text := " ".join(one.split()))))
        if not thoughts:
            return
        groups, done = hash_groups(view.read(*thoughts)), set[str]()  # a thought is changed once in a run
        for n, (thought, group) in enumerate(zip(thoughts, groups, strict=True)):
            near = [one for one in _in_group(thought, group, view) if one.id not in done]
            known = view.at(*(one.id for one in near))
            placing = writer.fill(
                Writing("place", _ask_place(thought, known), ThoughtPlacing, partial(_place, thought, known, near))
            )
            about = known[placing.about - 1] if 0 < placing.about <= len(known) else None
            turn, name = _thinker(thought, turns), f"#{n}"
            scores, who = {GROUP: float(group)}, turn.header.speaker
            yield Keep(text=thought, kind=THOUGHT, sources=(turn.id,), name=name, scores=scores, speaker=who)
            if about and placing.operation == "FORGET":
                done.add(about.id)
                yield ForgetMemory(id=about.id, why=f"contradicted by: {thought:.80}")
            elif about and placing.operation == "MERGE":
                done.add(about.id)
                text = " ".join(placing.text.split()) or thought
                first, second = (about.id, name) if text == about.text else (name, about.id)
                yield Merge(ids=(first, second), text=text, kind=THOUGHT, name=f"#merged{n}")
                yield Score(id=f"#merged{n}", name=GROUP, value=group)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        if not query.strip():
            return []
        [group] = hash_groups(view.read(query))

        def score(signals: CuratorSignals) -> Scores:
            return signals.plain.near - OTHER_GROUP * (signals.score(GROUP, -1) != group)

        return view.near(query, k, THOUGHT, score=score)


def hash_groups(vectors: Floats) -> list[int]:
    """argmax [xR; -xR] of each (Andoni et al., 2015): near vectors are likely to have the same."""
    turned = vectors @ _rotation(vectors.shape[1])
    return np.concatenate([turned, -turned], axis=1).argmax(1).tolist()


@cache
def _rotation(dim: int) -> Floats:
    return np.random.default_rng(0).standard_normal((dim, GROUPS // 2)).astype(np.float32)


def _in_group(thought: str, group: int, view: CuratorView) -> list[Recalled]:
    def score(signals: CuratorSignals) -> Scores:
        return np.where(signals.score(GROUP, -1) == group, signals.plain.near, -1.0)

    return [one for one in view.near(thought, NEAREST, THOUGHT, score=score) if one.score > 0]


def _thoughts(turns: Sequence[MemCube], view: CuratorView) -> InductiveThoughts:
    out = list[str]()
    for turn in turns:
        stated = [one for one in view.statements(turn) if terms(one)]
        out += stated[: MAX_THOUGHTS // len(turns)] or _sentence(turn)
    return InductiveThoughts(thoughts=[" ".join(one.split())[:MAX_THOUGHT_CHARS] for one in out[:MAX_THOUGHTS]])


def _sentence(turn: MemCube) -> list[str]:
    """The longest of a turn that is no question, by whom."""
    told = [one for one in sentences(turn.words) if not asks(one) and terms(one)]
    who = turn.header.speaker or turn.header.role
    return [f"{who}: {max(told, key=len)}" if who else max(told, key=len)] if told else []


def _place(thought: str, known: Sequence[MemCube], near: Sequence[Recalled]) -> ThoughtPlacing:
    for n, (cube, one) in enumerate(zip(known, near, strict=True), start=1):
        if thought.split()[:1] != cube.text.split()[:1]:  # another head entity
            continue
        if shared_terms(thought, cube.text) >= SAME and not says_change(thought):
            longer = max(thought, cube.text, key=lambda text: len(terms(text)))
            return ThoughtPlacing(operation="MERGE", about=n, text=longer[:MAX_THOUGHT_CHARS])
        if one.score >= NEAR and says_change(thought) and not says_change(cube.text):
            return ThoughtPlacing(operation="FORGET", about=n, text="")
    return ThoughtPlacing(operation="INSERT", about=0, text="")


def _thinker(thought: str, turns: Sequence[MemCube]) -> MemCube:
    """The turn that a thought is about: that with most of its words."""
    return max(turns, key=lambda turn: len(set(terms(thought)) & set(terms(turn.words))))


def _ask_thoughts(turns: Sequence[MemCube]) -> str:
    lines = "\n".join(f"{turn.header.speaker or turn.header.role}: {turn.words}" for turn in turns)
    return (
        "Which relations between things does this exchange tell? Give each as one sentence that begins with the thing "
        f"or person that it is about and can be understood by itself; none where there is none.\n\n{lines}"
    )


def _ask_place(thought: str, known: Sequence[MemCube]) -> str:
    lines = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(known, start=1))
    return (
        "A new thought comes to those that are there. FORGET one that it contradicts; MERGE it with one of the same "
        "subject that says the same, and give the text for both; INSERT it otherwise. Give the number of the thought, "
        f"0 for none.\n\nNew: {thought}\n\nThere:\n{lines}"
    )


def make(config: Config) -> ThinkInMemory:
    return ThinkInMemory()
