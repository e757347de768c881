"""SCM (arXiv 2304.13343): a stream of interactions with their summaries, and a controller that decides what is shown.

    exchange -> interaction in the stream; a summary of each that is long                           (memory stream)
    query -> is memory needed? -> by relevance and recency -> does the summary do, or the whole?    (controller)

With rules as writer, memory is needed where the query has a term beside greetings and thanks; a summary has of each
turn the sentences that say most; and it does where it has all of the query's terms that the whole has. What differs
from the paper: the flash memory, which is the interaction before, is the session that the program shows itself;
recency weighs a twentieth of relevance, as a query after months is as likely to mean the first day; and of what is
found the first ten are put to a model, the others decided by rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import Scores, terms
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Link, Writer, Writing
from memos.plugins.curators.rules import line
from memos.plugins.curators.signals import DAY_S, CuratorSignals, Recalled

INTERACTION, GIST = "interaction", "gist"  # Header.kind
SUMS_UP = "sums up"  # kind of the link from a summary to its interaction
LONG_CHARS = 320  # of an interaction, from which it has a summary
GIST_CHARS = 120  # of a turn in it
WHOLE_CHARS = 800  # of a turn in the stream
RECENCY, RECENT_DAYS = 0.05, 30.0  # its weight beside relevance, and in which time it falls to a third
ASKED = 10  # interactions that a model is asked about
_SMALL_TALK = re.compile(
    r"\b(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|bye|good (?:morning|evening|night)|great|nice|cool|sure|please)\b"
    r"|你好|谢谢|再见|好的",
    re.IGNORECASE,
)

GistLine = Annotated[str, Field(max_length=GIST_CHARS)]


class InteractionSummary(BaseModel):
    """lines: one for each turn."""

    lines: Annotated[list[GistLine], Field(max_length=8)]


class ControllerVerdict(BaseModel):
    """What the controller says."""

    yes: bool


class SelfControlledMemory(Curator):
    """Finds nothing where nothing is needed."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = [turn for turn in turns if turn.words.strip()]
        whole = [line(turn, WHOLE_CHARS) for turn in turns]
        if not turns:
            return
        ids = tuple(turn.id for turn in turns)
        opened = turns[0].header.speaker  # a query that names who began it is compared without the name
        yield Keep(text="\n".join(whole), kind=INTERACTION, sources=ids, name="#whole", speaker=opened)
        if sum(map(len, whole)) < LONG_CHARS:
            return
        ask = "Sum up this interaction in one short line for each turn, in order.\n\n" + "\n".join(whole)
        summary = writer.fill(Writing("sum up", ask, InteractionSummary, partial(_gist, turns)))
        if text := "\n".join(filter(None, (" ".join(one.split()) for one in summary.lines))):
            yield Keep(text=text, kind=GIST, sources=ids, name="#gist")
            yield Link(a="#gist", b="#whole", kind=SUMS_UP)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        ask = f"Does a reply to this need what was said in earlier conversations?\n\n{query}"
        if not writer.fill(Writing("need memory", ask, ControllerVerdict, partial(_needs_memory, query))).yes:
            return []
        found = view.near(query, k, INTERACTION, score=_rank)
        gists = {link.b: link.a for link in view.links(*(one.id for one in found)) if link.kind == SUMS_UP}
        texts = {cube.id: cube.text for cube in view.at(*gists, *gists.values())}
        long = [one.id for one in found if gists.get(one.id) in texts]
        writings = [_does(query, texts[gists[id]], texts[id]) for id in long]
        verdicts = [*writer.fill_all(writings[:ASKED]), *(one.rule() for one in writings[ASKED:])]
        short = {id: gists[id] for id, verdict in zip(long, verdicts, strict=True) if verdict.yes}
        return [Recalled(short.get(one.id, one.id), one.score, one.why) for one in found]


def _rank(signals: CuratorSignals) -> Scores:
    """Relevance and recency; the latest of all is the measure of what is recent."""
    age = signals.plain.age - (signals.plain.age.min() if len(signals.plain.age) else 0.0)
    return signals.plain.near + RECENCY * np.exp(-age / DAY_S / RECENT_DAYS)


def _needs_memory(query: str) -> ControllerVerdict:
    return ControllerVerdict(yes=bool(terms(_SMALL_TALK.sub(" ", query))))


def _does(query: str, gist: str, whole: str) -> Writing[ControllerVerdict]:
    """Whether a summary is enough for a query."""
    ask = f"Can the question be answered from this summary alone?\n\nQuestion: {query}\n\nSummary: {gist}"
    asked = set(terms(query, query=True))
    return Writing(
        "summary or whole",
        ask,
        ControllerVerdict,
        lambda: ControllerVerdict(yes=asked & set(terms(whole)) <= set(terms(gist))),
    )


def _gist(turns: Sequence[MemCube]) -> InteractionSummary:
    return InteractionSummary(lines=[line(turn, GIST_CHARS) for turn in turns][:8])


def make(config: Config) -> SelfControlledMemory:
    return SelfControlledMemory()
