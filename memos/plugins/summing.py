"""Sums up conversations of which enough has been said, by quoting the turns that stand for most of the others.

The local model does in their place, where it may.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memos.cube import SUMMARY, Form, Header, MemCube, Text, Trust, new_id
from memos.errors import MemosError
from memos.extensions import Registry
from memos.kernel.access import SAID, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memos.infrastructure.host.host import Host
    from memos.rights import Caller

log = logging.getLogger("memos")
Floats = npt.NDArray[np.float32]
TURNS, FEWEST = 40, 20  # that one summary is of; in a conversation that has ended
QUOTED = 6  # turns
MAX_QUOTED_CHARS = 240  # of each
REPEATED = 0.4  # how much it counts against a turn that it is near one that is quoted
# Turns as the model may read them, and the model -> what it says of them; "" where that is not to be believed.
RETELLERS: Registry[Callable[[Sequence[MemCube], Host], str]] = Registry("memos.retellers", "way of summing up")


class TurnSumming(Service):
    """Of so many turns at a time; see `memos.kernel.access.Summing`."""

    def sum_up(self, caller: Caller) -> list[MemCube]:
        """See `memos.kernel.access.Summing`."""
        operator, now, made = self._operator(), self._vault.now(), list[MemCube]()
        said, known = (self._access.view(caller, (kinds, None, None)) for kinds in (SAID, frozenset([SUMMARY])))
        summed_up = {source.id for cube in self._vault.at(operator.versions(known)) for source in cube.sources}
        for ids in operator.conversations(said):
            done = max((n for n, id in enumerate(ids, start=1) if id in summed_up), default=0)
            if len(ids) - done < FEWEST:
                continue
            turns = self._vault.at(ids[done:])
            if not (turns and caller.covers(turns[0].namespace) and turns[0].rights.owner == caller.user_id):
                continue
            ended = now - max(c.header.created for c in turns) >= timedelta(seconds=self._config.reader.after_s)
            for part in chapters(turns, ended):
                with operator.steady():
                    vectors = operator.vectors(cube.id for cube in part)
                    there = [cube for cube in part if cube.id in vectors]  # no other has deleted it meanwhile
                    if len(there) < FEWEST:
                        continue
                    telling = operator.telling([cube.id for cube in there], said)
                places = quoted(np.stack([vectors[cube.id] for cube in there]), telling)
                made.append(self._lifecycle.publish(self._told(there, places, now)))
        return self._freshness.changed(made) if made else made

    def _told(self, turns: Sequence[MemCube], places: Sequence[int], now: datetime) -> MemCube:
        """In the words of the local model, if `reader.model` lets it read turns, it reads more than a closed world, and
        what it says may be kept; else by what is quoted."""
        quotes = summary(turns, places, now)
        if not self._config.reader.model:
            return quotes
        try:
            host, guard = self._host(), self._vault.guard
            shown = [guard.as_shown(cube) for cube in turns]
            words = "" if host.in_closed_world else RETELLERS.get("prompts")(shown, host)
        except MemosError as error:
            log.warning("a conversation is summed up by quotes, as the model failed: %s", error)
            return quotes
        told = summary(turns, places, now, words) if words else quotes
        return quotes if guard.suspicion(told, lambda _: 0) else told


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
