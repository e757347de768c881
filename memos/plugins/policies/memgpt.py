"""MemGPT (arXiv 2310.08560): a context that is managed as an operating system manages its memory.

    main context       core memory: blocks of limited length, `human` and `persona`, always shown   (section 2.1)
                       a queue of messages; as it grows too long, the older half leaves it, and the recursive summary
                       at its head is written anew from what it was and what leaves             (section 2.2)
    external context   recall storage: every message; archival storage: what was put away

    turn -> the queue, core memory -> pressure -> what is worth it goes to the archive -> eviction, summary
    query -> a page of what both storages find, the core memory and the summary, further pages

In the paper a model calls functions to edit its memory (section 2.3); here the writer gives its calls as a list. With
rules, a lasting fact that somebody states goes into `human` and an instruction into `persona`, in place of the line
that it changes; what no longer fits there is paged out to the archive, the least important first, and so are evicted
messages of weight; the summary quotes the most telling. What differs from the paper: nobody searches in several steps,
and the messages of the queue are not shown by themselves, as who asks has them; they are found like others.
`memgpt-core` is without core memory, `memgpt-summary` without the summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.operation.policies.policy import standing
from memos.plugins.curators import blocks
from memos.plugins.curators.blocks import MAX_LINE, Line, Sentence
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Score, Writer, Writing
from memos.plugins.curators.rules import importance, said, says_change, sentences, shared_terms
from memos.plugins.curators.signals import Recalled

CORE, ARCHIVAL, SUMMARY = "core", "archival", "digest"  # Header.kind
BLOCKS = ("human", "persona")
BLOCK_CHARS = 600  # of each
QUEUE_CHARS = 6_000  # from which on the older half is evicted
SHOWN = 16  # messages that functions are called about at once; as many calls at most
SAME, ALIKE = 0.8, 0.2  # share of terms from which two lines say the same, and are about the same
LASTING, WORTH = 5.5, 4.5  # importance of what goes into core memory, and into the archive
QUEUED = "queued"  # a number that is kept with the messages of the queue: their characters


class Call(BaseModel):
    """message: the number of the one that says it, from 1. old: what is replaced; "" for nothing."""

    function: Literal["core_memory_append", "core_memory_replace", "archival_memory_insert"]
    block: Literal["human", "persona"]
    message: Annotated[int, Field(ge=1, le=SHOWN)]
    old: Sentence
    new: Sentence


class Calls(BaseModel):
    calls: Annotated[list[Call], Field(max_length=SHOWN)]


class MemGPT(Curator):
    """core, summary: without one, its part of the main context stays empty."""

    def __init__(self, core: bool = True, summary: bool = True) -> None:
        self._core, self._summary = core, summary

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        waiting = view.scores(QUEUED)
        queue = waiting | {turn.id: float(min(len(turn.words), QUEUE_CHARS)) for turn in turns}
        leaving = _older_half(queue) if sum(queue.values()) > QUEUE_CHARS else []
        for id in (queue.keys() - waiting.keys()).difference(leaving):
            yield Score(id=id, name=QUEUED, value=queue[id])
        for id in waiting.keys() & set(leaving):
            yield Score(id=id, name=QUEUED, value=None)
        evicted = [cube for cube in view.at(*leaving) if cube.header.kind == EPISODE]
        yield from self._edit(turns, evicted, view, writer)
        if self._summary and evicted:
            yield from _summarise(evicted, view, writer)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        near = view.near(query, 2 * k, EPISODE, PASSAGE, ARCHIVAL, score=blocks.by_words_and_meaning)
        always = [*blocks.shown(view, CORE), *blocks.shown(view, SUMMARY)]
        return blocks.with_shown(blocks.first_of_turns(near, view), always, k)

    def _edit(
        self, turns: Sequence[MemCube], evicted: Sequence[MemCube], view: CuratorView, writer: Writer
    ) -> Iterator[CuratorOp]:
        """What the calls of functions change: the blocks once, and what goes to the archive."""
        there = {cube.header.tags[0]: cube for cube in blocks.shown(view, CORE)} if self._core else {}
        lines = {name: blocks.lines_of(there.get(name)) for name in BLOCKS}
        pages = [(turns[:SHOWN], False), *((evicted[n : n + SHOWN], True) for n in range(0, len(evicted), SHOWN))]
        put_away = list[Line]()
        for messages, leaves in pages:
            for call in writer.fill(_call(messages, leaves, lines, view)).calls:
                if not call.new.strip() or call.message > len(messages):
                    continue
                line = Line(messages[call.message - 1].id, call.new)
                if call.function == "archival_memory_insert" or not self._core:
                    put_away.append(line)
                elif call.function == "core_memory_replace":
                    lines[call.block] = [one for one in lines[call.block] if one.text != call.old] + [line]
                else:
                    lines[call.block].append(line)
        for name in BLOCKS if self._core else ():
            paged_out = _paged_out(kept := blocks.one_per_source(lines[name]))
            put_away += paged_out
            yield from blocks.rewritten(there.get(name), [one for one in kept if one not in paged_out], CORE, (name,))
        for line in blocks.one_per_source(put_away):
            yield Keep(text=line.text, kind=ARCHIVAL, sources=(line.source,))


def _older_half(queue: Mapping[str, float]) -> list[str]:
    """The oldest messages, by their ids, beyond half of the characters that a queue may have."""
    ids = sorted(queue, reverse=True)
    return [id for id, chars in zip(ids, accumulate(queue[one] for one in ids), strict=True) if chars > QUEUE_CHARS / 2]


def _paged_out(lines: Sequence[Line]) -> list[Line]:
    """What has no room in a block: the least important, of equals the oldest."""
    over, out = sum(len(line.text) + 1 for line in lines) - BLOCK_CHARS, list[Line]()
    for line in sorted(lines, key=lambda one: importance(one.text)):
        if over > 0:
            out.append(line)
            over -= len(line.text) + 1
    return out


def _call(
    messages: Sequence[MemCube], leaves: bool, core: Mapping[str, Sequence[Line]], view: CuratorView
) -> Writing[Calls]:
    known = "\n".join(f"<{name}>\n{chr(10).join(line.text for line in core[name])}\n</{name}>" for name in core)
    why = "These messages are about to leave your context." if leaves else "These messages are new."
    ask = (
        "You keep a core memory of two short blocks that you always see: `human` on those you talk with, `persona` on "
        f"how you should be. An archive takes what has no room there. {why} Call functions to save what you will need; "
        f"none where there is nothing.\n\n{known}\n\n{blocks.numbered(messages)}"
    )
    rule = partial(_put_away, messages) if leaves else partial(_remembered, messages, core, view)
    return Writing("call functions", ask, Calls, lambda: Calls(calls=rule()[:SHOWN]))


def _remembered(messages: Sequence[MemCube], core: Mapping[str, Sequence[Line]], view: CuratorView) -> list[Call]:
    calls = list[Call]()
    for n, turn in enumerate(messages, start=1):
        lasts = importance(said(turn)) >= LASTING  # less is not worth the reading
        stated = [one[:MAX_LINE] for one in view.statements(turn)] if lasts else []
        instructs = [
            one[:MAX_LINE] for one in sentences(turn.words) if standing(one) == 1 and turn.header.role != "assistant"
        ]
        for block, texts in (("persona", instructs), ("human", [s for s in stated if importance(s) >= LASTING])):
            for text in texts:
                old = _changed_by(text, core[block])
                known = any(shared_terms(text, line.text) >= SAME for line in core[block])
                function = "core_memory_replace" if old else "core_memory_append"
                if old or not known:
                    calls.append(Call(function=function, block=block, message=n, old=old, new=text))
    return calls


def _changed_by(text: str, lines: Sequence[Line]) -> str:
    """The line of which a text says that it is otherwise now; "" for none."""
    if not says_change(text):
        return ""
    alike = [(shared_terms(text, line.text), line.text) for line in lines if line.text.split()[0] == text.split()[0]]
    share, line = max(alike, default=(0.0, ""))
    return line if share >= ALIKE else ""


def _put_away(messages: Sequence[MemCube]) -> list[Call]:
    return [
        Call(function="archival_memory_insert", block="human", message=n, old="", new=text[:MAX_LINE])
        for n, text in enumerate(map(said, messages), start=1)
        if importance(text) >= WORTH
    ]


def _summarise(evicted: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
    """The summary as it was, and what leaves, in one of the same length."""
    before = next(iter(blocks.shown(view, SUMMARY)), None)
    known = "\n".join(line.text for line in blocks.lines_of(before))
    ask = f"Write the summary of this conversation anew, a line for each message that matters. It was:\n{known}"
    messages = [*view.at(*(line.source for line in blocks.lines_of(before))), *evicted]
    yield from blocks.rewritten(before, blocks.digest(ask, messages, view, writer), SUMMARY)


def make(config: Config) -> MemGPT:
    return MemGPT()


def make_without_core(config: Config) -> MemGPT:
    return MemGPT(core=False)


def make_without_summary(config: Config) -> MemGPT:
    return MemGPT(summary=False)
