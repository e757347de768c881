"""ChatGPT's memory, after OpenAI's "Memory and new controls for ChatGPT" (2024; chat history since April 2025).

    turn  -> saved memories: what one asks it to remember, and facts that last; "forget that ..." takes one away
    40 turns of users -> the profile is written anew from what it was and what they have said since
    query -> a page of saved memories and chat history, the profile, further pages

There is no paper: what is known is what OpenAI tells of it (saved memories are a notepad that the model writes with a
tool and that goes into every prompt; chat history is referred to beside it) and the profile that its prompts show. With
rules as writer, statements of weight are saved, in place of one that they say is no longer so, and the profile quotes
the most telling messages. What differs: saved memories are shown as far as they are near to the question, where ChatGPT
shows all of them; of its several lists about the user there is one.

`openai-memory-history` is without chat history (saved memories and the profile alone, as in the comparisons on LoCoMo),
`openai-memory-profile` without the profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.plugins.curators import blocks
from memos.plugins.curators.blocks import MAX_LINE, Sentence
from memos.plugins.curators.curator import (
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Score,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import importance, says_change, sentences, shared_terms
from memos.plugins.curators.signals import Recalled

SAVED, PROFILE = "saved", "profile"  # Header.kind
NEAREST = 8  # saved memories that the tool is shown
REWRITTEN_AFTER = 40  # turns of users, from which the profile is due
LASTING = 5.0  # importance of a statement that is saved unasked
SAME, ALIKE = 0.85, 0.25  # share of terms from which two say the same, and are about the same
UNREAD = "unprofiled"  # a number that is kept with turns that the profile has not seen
_REMEMBER = re.compile(r"\b(?:remember|keep in mind|make a note|note) (?:that|this)\b:?|记住", re.IGNORECASE)
_FORGET = re.compile(
    r"(?:please |now |can you |could you )*(?:forget|don['’]t remember|delete)(?: about| that| what I said about)?\b"
    r"|(?:请)?忘(?:掉|记)",
    re.IGNORECASE,
)


class ToolCall(BaseModel):
    """A call of the tool `bio`. turn: the number of the message that gives the reason, from 1. about: the number of the
    saved memory that is changed or forgotten; 0 for none."""

    action: Literal["save", "update", "forget"]
    turn: Annotated[int, Field(ge=1, le=16)]
    about: Annotated[int, Field(ge=0, le=NEAREST)]
    text: Sentence


class ToolCalls(BaseModel):
    calls: Annotated[list[ToolCall], Field(max_length=6)]


class OpenAIMemory(Curator):
    """history: refers to what was said in earlier chats. profile: has one."""

    def __init__(self, history: bool = True, profile: bool = True) -> None:
        self._history, self._profile = history, profile
        self._kinds = (SAVED, EPISODE, PASSAGE) if history else (SAVED,)

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        users = [turn for turn in turns if turn.header.role != "assistant"][:16]
        if not users:
            return
        near = view.near(" ".join(turn.words[:300] for turn in users), NEAREST, SAVED)
        saved = view.at(*(one.id for one in near))
        done = set[str]()  # a memory is changed once in a run
        for call in writer.fill(_ask(users, saved, view)).calls:
            about = saved[call.about - 1] if 0 < call.about <= len(saved) else None
            if call.turn > len(users) or (about and about.id in done):
                continue
            source, text = users[call.turn - 1].id, call.text.strip()
            if about and call.action != "save":
                done.add(about.id)
                yield ForgetMemory(id=about.id, why=f"{call.action}: {text:.80}")
            if text and call.action != "forget":
                yield Keep(text=text, kind=SAVED, sources=(source,))
        if self._profile:
            yield from _profiled(users, view, writer)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        found = blocks.first_of_turns(view.near(query, 2 * k, *self._kinds, score=blocks.by_words_and_meaning), view)
        return blocks.with_shown(found, blocks.shown(view, PROFILE), k)


def _profiled(users: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
    unread = view.scores(UNREAD)
    if len(unread) + len(users) < REWRITTEN_AFTER:
        for turn in users:
            yield Score(id=turn.id, name=UNREAD, value=1.0)
        return
    for id in unread:
        yield Score(id=id, name=UNREAD, value=None)
    before = next(iter(blocks.shown(view, PROFILE)), None)
    known = blocks.lines_of(before)
    turns = [*view.at(*(line.source for line in known), *unread), *users]
    lines = "\n".join(line.text for line in known)
    ask = (
        "Write the profile of the user anew: preferences for replies, topics that came up, and what helps to help; "
        f"a line for each message that shows it. It was:\n{lines}"
    )
    yield from blocks.rewritten(before, blocks.digest(ask, turns, view, writer), PROFILE)


def _ask(users: Sequence[MemCube], saved: Sequence[MemCube], view: CuratorView) -> Writing[ToolCalls]:
    known = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(saved, start=1))
    ask = (
        "The tool `bio` keeps memories across conversations. Save what the user asks you to remember, and facts that "
        "last and help later; update a saved memory that is no longer true; forget one where the user asks for it. No "
        f"call where there is nothing.\n\nSaved:\n{known}\n\nThe user says:\n{blocks.numbered(users)}"
    )
    return Writing("use bio", ask, ToolCalls, lambda: ToolCalls(calls=list(_by_rule(users, saved, view))[:6]))


def _by_rule(users: Sequence[MemCube], saved: Sequence[MemCube], view: CuratorView) -> Iterator[ToolCall]:
    for n, turn in enumerate(users, start=1):
        who = turn.header.speaker or "User"
        asked = sentences(turn.words[:2_000])
        for sentence in asked:
            if order := _FORGET.match(sentence):
                if about := _about(sentence[order.end() :], saved):
                    yield ToolCall(action="forget", turn=n, about=about, text="")
            elif order := _REMEMBER.search(sentence):
                yield _saved(f"{who}: {sentence[order.end() :].strip()}", n, saved)
        if any(_FORGET.match(one) or _REMEMBER.search(one) for one in asked):
            continue
        for text in view.statements(turn) if importance(turn.words) >= LASTING else ():
            if importance(text) >= LASTING and all(shared_terms(text, cube.text) < SAME for cube in saved):
                yield _saved(text, n, saved)


def _saved(text: str, turn: int, saved: Sequence[MemCube]) -> ToolCall:
    about = _about(text, saved) if says_change(text) else 0
    return ToolCall(action="update" if about else "save", turn=turn, about=about, text=text[:MAX_LINE])


def _about(text: str, saved: Sequence[MemCube]) -> int:
    """The number of the saved memory that shares most of its terms with a text; 0 where none shares enough."""
    shares = [shared_terms(text, cube.text) for cube in saved]
    best = max(shares, default=0.0)
    return shares.index(best) + 1 if best >= ALIKE else 0


def make(config: Config) -> OpenAIMemory:
    return OpenAIMemory()


def make_without_history(config: Config) -> OpenAIMemory:
    return OpenAIMemory(history=False)


def make_without_profile(config: Config) -> OpenAIMemory:
    return OpenAIMemory(profile=False)
