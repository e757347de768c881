"""LIGHT (BEAM, arXiv 2510.27246, section 4): three memories beside each other, after those of people.

    episodic     the whole conversation, of which the turns that a question needs are retrieved
    working      its latest turns, as they were said
    scratchpad   what is salient in each exchange, written down as it goes on, summed up when it is too long, and
                 filtered by the question

With rules as writer, salient is what asks for something from now on, and what weighs as much as a turn of a life, a
name or a number does; the scratchpad is summed up by the lines that weigh most, and filtered by nearness. What differs
from the paper: turns are found by themselves, by meaning and by words, and not by keys and summaries that a model
writes of each pair; the scratchpad's older half is summed up, and not all of it.

`light-scratchpad`, `light-working`: light less the one or the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.operation.policies.policy import standing
from memos.plugins.curators.curator import (
    Archive,
    Curator,
    CuratorOp,
    CuratorView,
    Keep,
    Summarise,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import claims, hybrid, importance, line, said
from memos.plugins.curators.signals import Recalled

SCRATCHPAD = "scratchpad"  # Header.kind
WORKING = 10  # latest turns
ROOM = 60_000  # characters of the scratchpad; the paper sums 30,000 tokens up to 15,000
SALIENT = 5.0  # importance from which a rule writes a sentence down
NOTES = 8  # that a question's filter looks at
RELATED = 0.3  # cosine from which a note has to do with a question
Sentence = Annotated[str, Field(max_length=300)]


class SalientNote(BaseModel):
    """turn: the number of the turn that it is of, from 1."""

    text: Sentence
    turn: Annotated[int, Field(ge=1, le=8)]


class SalientNotes(BaseModel):
    notes: Annotated[list[SalientNote], Field(max_length=8)]


class KeptLines(BaseModel):
    """Numbers of lines, from 1."""

    lines: Annotated[list[Annotated[int, Field(ge=1, le=64)]], Field(max_length=32)]


class Light(Curator):
    """scratchpad, working: whether it has them."""

    def __init__(self, scratchpad: bool = True, working: bool = True) -> None:
        self._scratchpad, self._working = scratchpad, working

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = turns[:8]
        if not self._scratchpad:
            return
        lines = "\n".join(f"{n}. {said(turn)[:2_000]}" for n, turn in enumerate(turns, start=1))
        ask = (
            "Write down what is salient in this exchange, for questions that come much later: facts, dates, numbers, "
            "decisions, how replies are wanted. Give each with the number of its turn; nothing of small talk."
            f"\n\n{lines}"
        )
        notes = writer.fill(Writing("write the scratchpad", ask, SalientNotes, lambda: _salient(turns))).notes
        by_turn = dict[str, list[str]]()
        for note in notes:
            if text := " ".join(note.text.split()):
                by_turn.setdefault(turns[min(note.turn, len(turns)) - 1].id, []).append(text)
        if by_turn:  # a line for each turn
            yield Keep(text="\n".join(map(" ".join, by_turn.values())), kind=SCRATCHPAD, sources=tuple(by_turn))

    def on_idle(self, view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        pad = view.memories(SCRATCHPAD) if self._scratchpad else []
        if sum(len(cube.text) for cube in pad) <= ROOM or len(pad) < 2:
            return
        older = pad[: (len(pad) + 1) // 2]
        for start in range(0, len(older), 16):
            part = older[start : start + 16]
            lines = [pair for cube in part for pair in zip(cube.text.splitlines(), cube.sources, strict=False)][:64]
            asked = "\n".join(f"{n}. {text}" for n, (text, _) in enumerate(lines, start=1))
            half = max(1, min(32, len(lines) // 2))
            ask = f"Of these notes choose the {half} that matter most for later questions, by number.\n\n{asked}"
            weighty = sorted(range(len(lines)), key=lambda n: (-importance(lines[n][0]), n))[:half]
            rule = KeptLines(lines=sorted(n + 1 for n in weighty))
            chosen = writer.fill(Writing("sum up the scratchpad", ask, KeptLines, rule.model_copy)).lines
            kept = {lines[n - 1][1].id: lines[n - 1][0] for n in sorted(set(chosen)) if n <= len(lines)}
            for cube in part:
                yield Archive(id=cube.id, why="summed up")
            if kept:
                yield Summarise(text="\n".join(kept.values()), kind=SCRATCHPAD, sources=tuple(kept))

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        """The turns first; behind them, in a quarter of the places, what the scratchpad has and what was said last."""
        notes = self._notes(query, view, writer)[: k // 8] if self._scratchpad else []
        latest = view.memories(EPISODE)[-WORKING:] if self._working else []
        room = k - len(notes) - min(len(latest), k // 8)
        turns = view.near(query, room, EPISODE, PASSAGE, score=hybrid)
        there = {one.id for one in turns}
        working = [Recalled(turn.id, 0.0, {"working": 1.0}) for turn in latest[::-1] if turn.id not in there]
        return [*turns, *notes, *working][:k]

    def _notes(self, query: str, view: CuratorView, writer: Writer) -> list[Recalled]:
        """What of the scratchpad has to do with a question."""
        near = view.near(query, NOTES, SCRATCHPAD)
        texts = {cube.id: cube.text for cube in view.at(*(one.id for one in near))} if writer.is_model else {}
        lines = "\n".join(f"{n}. {texts.get(one.id, '')}" for n, one in enumerate(near, start=1))
        ask = f"Which of these notes help to answer the question? Give their numbers.\n\n{query[:2_000]}\n\n{lines}"
        rule = KeptLines(lines=[n for n, one in enumerate(near, start=1) if one.score >= RELATED])
        kept = writer.fill(Writing("filter the scratchpad", ask, KeptLines, lambda: rule)).lines if near else []
        return [near[n - 1] for n in sorted(set(kept)) if n <= len(near)]


def _salient(turns: Sequence[MemCube]) -> SalientNotes:
    found = list[SalientNote]()
    for n, turn in enumerate(turns, start=1):
        if standing(turn.words[:4_000]) == 1:  # as a whole, for what it asks may be in another sentence
            found.append(SalientNote(text=line(turn, 300), turn=n))
        else:
            found += [SalientNote(text=one[:300], turn=n) for one in claims(turn) if importance(one) >= SALIENT]
    return SalientNotes(notes=found[:8])


def make(config: Config) -> Light:
    return Light()


def make_less_scratchpad(config: Config) -> Light:
    return Light(scratchpad=False)


def make_less_working(config: Config) -> Light:
    return Light(working=False)
