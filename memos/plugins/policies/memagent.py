"""MemAgent (arXiv 2507.02259): one memory of a fixed size, which each chunk of what is read overwrites.

    memory of N lines + the next chunk -> model -> memory of N lines, in which the chunk has had its say    (section 3)

What it costs is linear in what is read, and what is kept never grows: 24 lines of 160 characters, some 1,000 tokens. A
line is a memory of its own, so that it names the turn that it tells; a line that is overwritten is archived. With rules
as writer, a line counts by its importance (Generative Agents, section 4.1), and a new one takes the place of the least
important, of equals the oldest; what says the same as a line takes its place. What differs from the paper: there the
question is known before the reading, and the overwriting is learnt with a reward for the answer; here it is not known,
and a chunk is an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, ForgetMemory, Keep, Score, Writer, Writing
from memos.plugins.curators.rules import importance, line, shared_terms
from memos.plugins.curators.signals import Recalled

SLOT = "slot"  # Header.kind of a line of the memory
WORTH = "memagent worth"  # score of a line
MAX_LINES = 24
MAX_LINE_CHARS = 160
SAME = 0.7  # share of terms from which two lines say the same

MemoryLine = Annotated[str, Field(max_length=MAX_LINE_CHARS)]


class OverwrittenMemory(BaseModel):
    """The memory after a chunk."""

    lines: Annotated[list[MemoryLine], Field(max_length=MAX_LINES)]


class MemAgent(Curator):
    """Reads a chunk, and keeps what the memory then has."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        worths = view.scores(WORTH)  # of lines that are there alone: one that is overwritten gives it up
        slots = view.at(*sorted(worths))
        new = [(line(turn, MAX_LINE_CHARS), turn.id) for turn in turns if turn.words.strip()]
        if not new:
            return
        ask, rule = _overwrite([slot.text for slot in slots], [text for text, _ in new]), partial(_by_rule, slots, new)
        wanted = writer.fill(Writing("overwrite the memory", ask, OverwrittenMemory, rule)).lines
        kept = {one for text in wanted if (one := " ".join(text.split()))}
        for slot in slots:
            if slot.text not in kept:
                yield Score(id=slot.id, name=WORTH, value=None)
                yield ForgetMemory(id=slot.id, why="overwritten")
        there, speakers = {slot.text for slot in slots}, {turn.id: turn.header.speaker for turn in turns}
        for text in dict.fromkeys(" ".join(text.split()) for text in wanted):
            if text and text not in there:
                told, worth = _told_by(text, new, slots), {WORTH: importance(text)}
                yield Keep(text=text, kind=SLOT, sources=told, scores=worth, speaker=speakers.get(told[0], ""))

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        """The whole memory, for which a prompt has room: what is near first."""
        return view.near(query, k, SLOT)


def _by_rule(slots: Sequence[MemCube], new: Sequence[tuple[str, str]]) -> OverwrittenMemory:
    lines = [slot.text for slot in slots]
    for text, _ in new:
        same = [n for n, old in enumerate(lines) if shared_terms(old, text) >= SAME]
        for n in reversed(same):
            del lines[n]
        lines.append(text)
        if len(lines) > MAX_LINES:
            del lines[min(range(len(lines)), key=lambda n: importance(lines[n]))]  # of equals, the first
    return OverwrittenMemory(lines=lines)


def _told_by(text: str, new: Sequence[tuple[str, str]], slots: Sequence[MemCube]) -> tuple[str, ...]:
    """The turns that a line tells: those of the chunk or of the line before with most of its words."""
    before = [(slot.text, tuple(source.id for source in slot.sources)) for slot in slots]
    told = max([*((old, (id,)) for old, id in new), *before], key=lambda one: shared_terms(one[0], text))
    return told[1]


def _overwrite(memory: Sequence[str], chunk: Sequence[str]) -> str:
    return (
        f"Here is a memory of at most {MAX_LINES} lines and the next part of what is read. Write the memory anew: keep "
        "the lines that may still be asked for word for word, add what the part says that may be asked for, and leave "
        f"out the rest.\n\nMemory:\n{chr(10).join(memory)}\n\nNext part:\n{chr(10).join(chunk)}"
    )


def make(config: Config) -> MemAgent:
    return MemAgent()
