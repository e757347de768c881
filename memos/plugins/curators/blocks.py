"""A text that is always shown: lines, each of which quotes one source, and its place among what is found.

For systems that keep a part of the prompt by hand: core memory, a summary, a profile, instructions. Must not know a
system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from memos.cube import MemCube
from memos.operation.policies.policy import Scores
from memos.plugins.curators.curator import CuratorOp, CuratorView, ForgetMemory, Keep, Revise, Score, Writer, Writing
from memos.plugins.curators.rules import said, telling
from memos.plugins.curators.signals import CuratorSignals, Recalled

PAGE = 5  # memories found that come before what is always shown
MAX_LINE = 160  # characters
MAX_MESSAGES, MAX_LINES = 200, 8  # that are quoted from, and that are quoted

Sentence = Annotated[str, Field(max_length=MAX_LINE)]


class Line(NamedTuple):
    source: str  # id of the turn that it quotes
    text: str


class NumberedLine(BaseModel):
    """message: its number, from 1."""

    message: Annotated[int, Field(ge=1, le=MAX_MESSAGES)]
    text: Sentence


class Digest(BaseModel):
    """What matters of some messages, a line for each."""

    lines: Annotated[list[NumberedLine], Field(max_length=MAX_LINES)]


def digest(
    ask: str,
    messages: Sequence[MemCube],
    view: CuratorView,
    writer: Writer,
    rule: Callable[[], Digest] | None = None,
) -> list[Line]:
    """What the writer is asked for of these messages, in their order. rule: None to quote the most telling."""
    messages = messages[-MAX_MESSAGES:]

    def quoted() -> Digest:
        best = {cube.id for cube in telling(messages, view.vectors(messages), MAX_LINES)}
        lines = [(n, cube) for n, cube in enumerate(messages, start=1) if cube.id in best]
        return Digest(lines=[NumberedLine(message=n, text=said(cube)[:MAX_LINE]) for n, cube in lines])

    filled = writer.fill(Writing("digest", f"{ask}\n\n{numbered(messages)}", Digest, rule or quoted))
    lines = sorted(filled.lines, key=lambda line: line.message)
    return [Line(messages[one.message - 1].id, one.text) for one in lines if one.message <= len(messages)]


def numbered(messages: Sequence[MemCube]) -> str:
    return "\n".join(f"{n}. {said(turn)[:500]}" for n, turn in enumerate(messages, start=1))


def lines_of(block: MemCube | None) -> list[Line]:
    """Those of a memory that was written by `rewritten`, in order."""
    texts = block.text.split("\n") if block else []
    return [Line(source.id, text) for source, text in zip(block.sources if block else (), texts, strict=False)]


def one_per_source(lines: Sequence[Line]) -> list[Line]:
    """What several lines quote of one source as one, in the place of the first; nothing twice."""
    texts: dict[str, list[str]] = {}
    for line in lines:
        text, known = " ".join(line.text.split()), texts.setdefault(line.source, [])
        if text and not any(text in other for other in known):
            known.append(text)
    return [Line(source, " ".join(known)) for source, known in texts.items() if known]


def shown(view: CuratorView, kind: str) -> list[MemCube]:
    """Those of this kind that were written by `rewritten`; nothing else is read."""
    return [cube for cube in view.at(*view.scores(kind)) if cube.header.kind == kind]


def rewritten(
    block: MemCube | None, lines: Sequence[Line], kind: str, tags: tuple[str, ...] = ()
) -> Iterator[CuratorOp]:
    """Let a memory have these lines: what is added at its end revises it; else it is made anew, as a line that is
    taken away takes its source along. It is found again by a number with the name of its kind."""
    lines, before = one_per_source(lines), lines_of(block)
    if lines == before:
        return
    text, sources = "\n".join(line.text for line in lines), tuple(line.source for line in lines)
    if block and lines[: len(before)] == before:
        yield Revise(id=block.id, text=text, sources=sources)
        return
    if block:
        yield Score(id=block.id, name=kind, value=None)
        yield ForgetMemory(id=block.id, why="rewritten")
    if lines:
        yield Keep(text=text, kind=kind, sources=sources, tags=tags, scores={kind: 1.0})


def by_words_and_meaning(signals: CuratorSignals) -> Scores:
    return signals.plain.near + signals.plain.words


def first_of_turns(found: Sequence[Recalled], view: CuratorView) -> list[Recalled]:
    """Of a turn, and of what tells that turn alone, the best."""
    firsts = dict[str, Recalled]()
    by_id = {cube.id: cube for cube in view.at(*(one.id for one in found))}
    for one in found:
        sources = by_id[one.id].sources if one.id in by_id else ()
        firsts.setdefault(sources[0].id if len(sources) == 1 else one.id, one)
    return list(firsts.values())


def with_shown(found: Sequence[Recalled], always: Sequence[MemCube], k: int) -> list[Recalled]:
    """The first page of what is found, what is always shown, then the other pages; at most k."""
    ids = {cube.id for cube in always}
    pages = [one for one in found if one.id not in ids]
    beside = [Recalled(cube.id, pages[0].score if pages else 1.0, {"shown": 1.0}) for cube in always]
    return [*pages[:PAGE], *beside, *pages[PAGE:]][:k]
