"""MemoryBank (arXiv 2305.10250): exchanges, a summary of each day, a portrait of who speaks, and forgetting.

    exchange -> piece; as another day begins: pieces -> summary of the day -> events and portrait of all days  (2.1)
    query -> the nearest pieces and summaries, with the events and the portrait                                (2.2)
    piece -> R = exp(-t / S), t days since it was used last; S is 1, and 1 more each time that it was used    (2.3)

With rules as writer, a day is summed up by what stands nearest to the middle of it, a line of each piece that does; the
portrait has the weightiest lines in which somebody tells of a preference or a turn of life, the events those of the
summaries. What differs from the paper: there a piece is forgotten by chance with probability 1 - R, here where R
falls below 0.05, which is three days after it was kept and six after its first use; what is forgotten is archived, and
what was said stays. A line of a summary names the turn that it tells.

`memorybank-forgetting` is the ablation of section 2.3: nothing is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import standing
from memos.plugins.curators.curator import (
    Archive,
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Score,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import importance, line, shared_terms, telling
from memos.plugins.curators.signals import DAY_S, Recalled

PIECE, DAY, EVENTS, PORTRAIT = "exchange", "day", "events", "portrait"  # Header.kind
OPEN = "memorybank open day"  # score of a piece that no day sums up yet: the day, as a number
WHOLE = "memorybank whole"  # score of the events and the portrait
FORGOTTEN = 0.05  # retention below which a piece is forgotten
DAY_LINES, TRAITS = 4, 3  # of one day
WHOLE_LINES = 12  # of the events, and of the portrait
LINE_CHARS = 240
WEIGHTY = 5.0  # importance from which a line is of the portrait

SummaryLine = Annotated[str, Field(max_length=LINE_CHARS)]


class DaySummary(BaseModel):
    """What is written as a day is over. traits: what it tells of those who speak."""

    events: Annotated[list[SummaryLine], Field(max_length=DAY_LINES)]
    traits: Annotated[list[SummaryLine], Field(max_length=TRAITS)]


class ToldLine(NamedTuple):
    """A line, and the turn that it tells."""

    text: str
    turn: str


class MemoryBank(Curator):
    """forgetting: False for one that keeps everything."""

    def __init__(self, forgetting: bool = True) -> None:
        self._forgetting = forgetting

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        told = [ToldLine(line(turn), turn.id) for turn in turns if turn.words.strip()]
        if not told:
            return
        today = float((turns[0].header.said or turns[0].header.created).toordinal())
        over = [id for id, day in view.scores(OPEN).items() if day != today]
        if pieces := sorted(view.at(*over), key=lambda piece: piece.order):
            yield from self._sum_up(pieces, view, writer)
        opened = turns[0].header.speaker  # a query that names who began it is compared without the name
        yield _kept(told, PIECE, {OPEN: today}, opened)

    def _sum_up(self, pieces: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        told = [one for piece in pieces for one in _lines(piece)]
        ask, rule = _ask_day(told), partial(_day, pieces, view)
        summary = writer.fill(Writing("sum up a day", ask, DaySummary, rule))
        events, traits = ([_told_by(text, told) for text in texts if text.strip()] for texts in _both(summary))
        for piece in pieces:
            yield Score(id=piece.id, name=OPEN, value=None)
        if events:
            yield _kept(events, DAY)
        before = {cube.header.kind: cube for cube in view.at(*view.scores(WHOLE))}
        for kind, new in ((EVENTS, events), (PORTRAIT, traits)):
            yield from _renew(kind, before.get(kind), new)

    def on_idle(self, view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        open_pieces = view.scores(OPEN)  # a day is summed up before it is forgotten
        for one in view.memories(PIECE, DAY) if self._forgetting else ():
            idle = (view.now - (one.usage.last_recalled or one.header.created)).total_seconds() / DAY_S
            retention = math.exp(-max(0.0, idle) / (1 + one.usage.recalls))
            if one.id not in open_pieces and retention < FORGOTTEN:
                yield ForgetMemory(id=one.id, why=f"retention {retention:.3f} after {idle:.0f} days")

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        found = view.near(query, k, PIECE, DAY)
        whole = [cube.id for cube in view.at(*view.scores(WHOLE))][: k // 4]
        last = found[-1].score if found else 0.0
        return [*found[: k - len(whole)], *(Recalled(id, last, {"always": 1.0}) for id in whole)]


def _kept(told: Sequence[ToldLine], kind: str, scores: dict[str, float] | None = None, speaker: str = "") -> Keep:
    """Lines as one memory; a turn that two lines tell is named once, so its second line goes."""
    once = {one.turn: one.text for one in told}
    return Keep(text="\n".join(once.values()), kind=kind, sources=tuple(once), scores=scores or {}, speaker=speaker)


def _lines(cube: MemCube) -> list[ToldLine]:
    return [ToldLine(text, source.id) for text, source in zip(cube.text.splitlines(), cube.sources, strict=False)]


def _renew(kind: str, old: MemCube | None, new: Sequence[ToldLine]) -> Iterator[CuratorOp]:
    """The weightiest lines of an old memory and the new ones, in place of the old one."""
    lines = [*(_lines(old) if old else ()), *new]
    kept = sorted(sorted(range(len(lines)), key=lambda n: (-importance(lines[n].text), -n))[:WHOLE_LINES])
    if not new or (old and [lines[n] for n in kept] == _lines(old)):
        return
    if old:
        yield Score(id=old.id, name=WHOLE, value=None)
        yield Archive(id=old.id, why="renewed")
    yield _kept([lines[n] for n in kept], kind, {WHOLE: 1.0})


def _day(pieces: Sequence[MemCube], view: CuratorView) -> DaySummary:
    def weight(one: ToldLine) -> float:
        return importance(one.text)

    middle = telling(pieces, view.vectors(pieces), DAY_LINES) if len(pieces) > DAY_LINES else pieces
    events = [max(_lines(piece), key=weight).text[:LINE_CHARS] for piece in middle]
    told = [one for piece in pieces for one in _lines(piece)]
    traits = [one for one in told if standing(one.text) or weight(one) >= WEIGHTY]
    return DaySummary(events=events, traits=[one.text[:LINE_CHARS] for one in sorted(traits, key=weight)[-TRAITS:]])


def _both(summary: DaySummary) -> tuple[list[str], list[str]]:
    return summary.events, summary.traits


def _told_by(text: str, told: Sequence[ToldLine]) -> ToldLine:
    """A line that was written, with the turn that has most of its words."""
    text = " ".join(text.split())
    best = max(told, key=lambda one: (one.text.startswith(text), shared_terms(text, one.text)))
    return ToldLine(text, best.turn)


def _ask_day(told: Sequence[ToldLine]) -> str:
    lines = "\n".join(one.text for one in told)
    return (
        "Sum up the events of this day, each in a sentence that can be understood by itself, and say in as few what "
        f"the day tells of the character and the likings of those who speak.\n\n{lines}"
    )


def make(config: Config) -> MemoryBank:
    return MemoryBank()


def make_without_forgetting(config: Config) -> MemoryBank:
    return MemoryBank(forgetting=False)
