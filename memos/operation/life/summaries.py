"""Sums up long conversations, in their own words by the turns that stand for most of the others, or as a model has.

Knows turns and their vectors. Must not know how they are found or who may see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from memos.cube import SUMMARY, Form, Header, MemCube, Text, Trust, new_id

Floats = npt.NDArray[np.float32]
TURNS, FEWEST = 40, 20  # that one summary is of; in a conversation that has ended
QUOTED = 6  # turns
MAX_QUOTED_CHARS = 240  # of each
REPEATED = 0.4  # how much it counts against a turn that it is near one that is quoted


def chapters(turns: Sequence[MemCube], ended: bool) -> Iterator[Sequence[MemCube]]:
    """Those of a conversation's turns, in order, that a summary is to be made of, TURNS at a time. ended: what is left
    is summed up as well, unless it is short."""
    for start in range(0, len(turns), TURNS):
        part = turns[start : start + TURNS]
        if len(part) == TURNS or (ended and len(part) >= FEWEST):
            yield part


def quoted(vectors: Floats, telling: Floats, most: int = QUOTED) -> list[int]:
    """Places of the turns that tell most and are far from each other, ascending: maximal marginal relevance (Carbonell
    and Goldstein, 1998). vectors: [turns, dim], each of length 1. telling: [turns]."""
    worth = telling / max(float(telling.max()), 1e-9)
    taken, again = list[int](), np.zeros(len(vectors), np.float32)
    for _ in range(min(most, len(vectors))):
        gain = worth - REPEATED * again
        gain[taken] = -np.inf
        taken.append(int(gain.argmax()))
        again = np.maximum(again, vectors @ vectors[taken[-1]])
    return sorted(taken)


def summary(turns: Sequence[MemCube], places: Sequence[int], now: datetime, words: str = "") -> MemCube:
    """A memory that quotes of these turns of a conversation those at these places. It is made of them and of the last
    one, which tells how far the conversation is summed up. words: of a model in place of quotes, made of all turns."""
    first, last, lines = turns[0], turns[-1], [turns[n] for n in places]
    sources = turns if words else {cube.id: cube for cube in (*lines, last)}.values()
    trusts = [cube.header.trust for cube in sources] + ([Trust.MODEL] if words else [])
    days = dict.fromkeys(f"{cube.order[0]:%Y-%m-%d}" for cube in (first, last))
    header = Header(
        created=now,
        said=last.order[0],
        origin=SUMMARY,
        trust=max(trusts, key=lambda trust: trust.rank),
        segment=f"{SUMMARY} of {last.header.thread}",
        kind=SUMMARY,
    )
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=last.namespace,
        rights=last.rights,
        header=header,
        payload=Text(text="\n".join([" – ".join(days), *([words] if words else map(_quote, lines))]), more=True),
        sources=tuple(cube.pin for cube in sources),
    )


def _quote(turn: MemCube) -> str:
    """Who said it, and as much of it as there is room for, up to the end of a word."""
    words = " ".join(turn.words.split())
    if len(words) > MAX_QUOTED_CHARS:
        words = f"{words[:MAX_QUOTED_CHARS].rsplit(' ', 1)[0]} …"
    return f"{turn.header.speaker or turn.header.role}: {words}"
