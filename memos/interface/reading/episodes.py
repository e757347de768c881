"""Turns of a conversation as they are kept: word for word, long ones cut into passages; knows no statements.

A passage is a part of a turn between two empty lines, line ends or sentences, so that what is found can be read by
itself. The white space between passages is the turn's alone, which is kept whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memos.cube import EPISODE, PASSAGE, PASSAGE_CHARS, Trust, whose
from memos.interface.reading.documents.parts import DialogueTurn
from memos.ops import Add, Episode

_BREAKS = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"(?<=[.!?;:])\s|(?<=[。！？；])", r"\s", r"")))  # the best first


def episode(turn: DialogueTurn, origin: str, statements: tuple[Add, ...] = ()) -> Episode:
    """A turn with the statements that were read in it. One that says nothing else is the turn."""
    if len(statements) == 1 and _same(statements[0].verbatim, turn.content):
        whole = statements[0].model_copy(update={"verbatim": turn.content, "role": turn.role, "message_id": turn.id})
        return Episode(turn=whole)
    said = _said(turn, turn.content, EPISODE, origin).model_copy(update={"message_id": turn.id})
    parts = passages(turn.content) if len(turn.content) > PASSAGE_CHARS else ()
    return Episode(
        turn=said,
        passages=tuple(_said(turn, part, PASSAGE, origin) for part in parts),
        statements=tuple(one.model_copy(update={"role": turn.role}) for one in statements),
    )


def passages(text: str) -> list[str]:
    """The parts of a text, each of at most PASSAGE_CHARS characters, as long as they can be."""
    found: list[str] = []
    for piece in _pieces(text):
        if found and len(found[-1]) + len(piece) <= PASSAGE_CHARS:
            found[-1] += piece
        else:
            found.append(piece)
    return [part.strip() for part in found if part.strip()]


def _pieces(text: str, level: int = 0) -> Iterator[str]:
    """Cut at the best kind of break at which every piece is short enough, with the white space that follows each."""
    if len(text) <= PASSAGE_CHARS:
        yield text
        return
    if level == len(_BREAKS) - 1:  # one word of any length
        yield from (text[start : start + PASSAGE_CHARS] for start in range(0, len(text), PASSAGE_CHARS))
        return
    start = 0
    for found in _BREAKS[level].finditer(text):
        if found.end() > start:
            yield from _pieces(text[start : found.end()], level + 1)
            start = found.end()
    if start < len(text):
        yield from _pieces(text[start:], level + 1)


def _said(turn: DialogueTurn, words: str, kind: str, origin: str) -> Add:
    return Add(
        text=f"{whose(turn.speaker, turn.time)}: {words}",
        verbatim=words,
        speaker=turn.speaker,
        role=turn.role,
        said=turn.time,
        origin=origin,
        trust=Trust.MODEL if turn.silent else None,
        kind=kind,
    )


def _same(statement: str, content: str) -> bool:
    """True where a statement is all of a turn, but for how it ends."""
    return statement.strip(" .!。！\n") == content.strip(" .!。！\n")
