"""MIRIX (arXiv 2507.07957): six memories, each with a manager, and a meta manager that says whose turn it is.

    core        who the user is, in a block of bounded length that is rewritten when it is full
    episodic    what happened when                    semantic    what is known of people and things
    procedural  how something is done                 resource    documents, code, and what was shown
    vault       what has to be kept to the letter: addresses, numbers, secrets, with how sensitive it is
    exchange -> meta manager -> the managers that it names, each of which writes into its own       (section 3.2)
    query    -> its topic -> each of the six is asked for it -> what they give, together            (active retrieval)

With rules as writer, the meta manager goes by words and forms of what was said, a manager keeps the sentences or turns
that are its own, and the topic is the query's own terms. What differs from the paper: the core block is kept by line
and halved by weight when it is full, the episodes are those that were said, one for each turn, with no summary over
them, and of what is said again a manager keeps the first. A secret is found by a query that asks for one of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import MemCube
from memos.operation.policies.policy import terms
from memos.plugins.curators.curator import (
    Archive,
    Curator,
    CuratorOp,
    CuratorView,
    Keep,
    Revise,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import claims, hybrid, importance, line, proper_names, shared_terms, spread
from memos.plugins.curators.signals import Recalled

CORE, EPISODIC, SEMANTIC = "core block", "event", "concept"  # Header.kind
PROCEDURAL, RESOURCE, VAULT = "procedure", "resource", "vault entry"
OF_MANAGER = {
    "core": CORE,
    "episodic": EPISODIC,
    "semantic": SEMANTIC,
    "procedural": PROCEDURAL,
    "resource": RESOURCE,
    "vault": VAULT,
}
CORE_LINES = 12  # of a block, which the paper rewrites when it is full
LONG = 600  # characters from which a turn is a document
SAME = 0.9  # share of terms from which two texts say the same
_SELF = re.compile(
    r"\b(?:my name is|i['’]?m an? |i am an? |i work|i live|i (?:really )?(?:love|like|hate|prefer)|my favou?rite"
    r"|i['’]m allergic|call me)\b|我叫|我是|我喜欢|我住",
    re.IGNORECASE,
)
_HOW = re.compile(
    r"\b(?:first,? .*\b(?:then|next)\b|step \d|how to|whenever i|the way (?:i|to)|to do (?:it|this|that),|recipe)"
    r"|先.*(?:再|然后)|步骤",
    re.IGNORECASE | re.DOTALL,
)
_SHOWN = re.compile(r"```|\[(?:an? )?(?:photo|image|file|document)|\b[\w-]+\.(?:pdf|docx?|xlsx?|md|csv|py)\b", re.I)
_SECRET = re.compile(r"\b(?:password|passcode|pin|api key|token|credential)s?\b|密码|口令", re.IGNORECASE)
_LETTERS = re.compile(
    r"[\w.+-]+@[\w-]+\.\w+|(?<![\d/-])(?!\d{4}-\d\d)\+?\d[\d ()-]{6,}\d\b|https?://\S+"
    r"|\b\d+ [A-Z]\w+ (?:Street|St|Road|Rd|Ave)\b"
)
Sentence = Annotated[str, Field(max_length=300)]


class MixedEntry(BaseModel):
    """What one manager writes: into which memory, and of which turn, from 1."""

    memory: Literal["core", "episodic", "semantic", "procedural", "resource", "vault"]
    text: Sentence
    turn: Annotated[int, Field(ge=1, le=8)]


class MixedEntries(BaseModel):
    entries: Annotated[list[MixedEntry], Field(max_length=12)]


class QueryTopic(BaseModel):
    topic: Annotated[str, Field(max_length=80)]


class Mirix(Curator):
    """The six, each of a kind of its own."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = turns[:8]
        entries = writer.fill(Writing("route and write", _route(turns), MixedEntries, lambda: _routed(turns))).entries
        core = list[tuple[str, MemCube]]()
        for entry in entries:
            turn, text = turns[min(entry.turn, len(turns)) - 1], entry.text.strip()
            if not text:
                continue
            if entry.memory == "core":
                core.append((text, turn))
            elif entry.memory == "episodic" or not _is_known(text, OF_MANAGER[entry.memory], view):
                secret = entry.memory == "vault" and _SECRET.search(text)
                tags = ("sensitivity:high",) if secret else ()
                kind, who = OF_MANAGER[entry.memory], turn.header.speaker
                yield Keep(text=text, kind=kind, sources=(turn.id,), tags=tags, speaker=who, thread=turn.header.thread)
        if core:
            yield from _into_core(core, view.memories(CORE))

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        ask = f"Name the topic that has to be looked up in the memories, in a few words.\n\nQuestion: {query[:2_000]}"
        rule = QueryTopic(topic=" ".join(dict.fromkeys(terms(query, query=True)))[:80])
        topic = writer.fill(Writing("name the topic", ask, QueryTopic, lambda: rule)).topic if writer.is_model else ""
        looked_for = f"{query}\n{topic}" if topic else query
        given = [one for kind in OF_MANAGER.values() for one in view.near(looked_for, k, kind, score=hybrid)]
        if not _SECRET.search(query):
            guarded = {cube.id for cube in view.at(*(o.id for o in given)) if "sensitivity:high" in cube.header.tags}
            given = [one for one in given if one.id not in guarded]
        return spread(sorted(given, key=lambda one: -one.score), view)[:k]


def _into_core(new: Sequence[tuple[str, MemCube]], blocks: Sequence[MemCube]) -> Iterator[CuratorOp]:
    """A block for each who speaks; a line for each source, so that a block that is halved is kept anew."""
    for who in dict.fromkeys(turn.header.speaker for _, turn in new):
        block = next((cube for cube in blocks if cube.header.speaker == who), None)
        held = block.text.splitlines() if block else []
        sources = [source.id for source in block.sources] if block else []
        added = dict[str, str]()  # the turns of a block are its sources, each of which has one line
        for text, turn in new:
            known = turn.id in sources or any(shared_terms(text, one) >= SAME for one in held)
            if turn.header.speaker == who and not known:
                added.setdefault(turn.id, " ".join(text.split()))
        if not added:
            continue
        lines, of = [*held, *added.values()], [*sources, *added]
        if block and len(lines) <= CORE_LINES:
            yield Revise(id=block.id, text="\n".join(lines), sources=tuple(added))
            continue
        if len(lines) > CORE_LINES:
            weight = sorted(range(len(lines)), key=lambda n: (-importance(lines[n]), -n))[: CORE_LINES // 2]
            lines, of = [lines[n] for n in sorted(weight)], [of[n] for n in sorted(weight)]
        if block:
            yield Archive(id=block.id, why="rewritten, for it was full")
        yield Keep(text="\n".join(lines), kind=CORE, sources=tuple(of), speaker=who)


def _is_known(text: str, kind: str, view: CuratorView) -> bool:
    near = view.near(text, 1, kind)
    return any(shared_terms(text, cube.text) >= SAME for cube in view.at(*(one.id for one in near)))


def _routed(turns: Sequence[MemCube]) -> MixedEntries:
    """What each manager would take, by words and forms."""
    found = list[MixedEntry]()
    for n, turn in enumerate(turns, start=1):
        text, whole = turn.words[:4_000], line(turn, 300)
        if not text.strip():
            continue
        found.append(MixedEntry(memory="episodic", text=whole, turn=n))
        if len(text) > LONG or _SHOWN.search(text):
            found.append(MixedEntry(memory="resource", text=whole, turn=n))
        if _HOW.search(text):
            found.append(MixedEntry(memory="procedural", text=whole, turn=n))
        for one in (claim[:300] for claim in claims(turn)):
            if _SECRET.search(one) or _LETTERS.search(one):
                found.append(MixedEntry(memory="vault", text=one, turn=n))
            elif _SELF.search(one):
                found.append(MixedEntry(memory="core", text=one, turn=n))
            elif proper_names(one.split(": ", 1)[-1]):
                found.append(MixedEntry(memory="semantic", text=one, turn=n))
    return MixedEntries(entries=found[:12])


def _route(turns: Sequence[MemCube]) -> str:
    lines = "\n".join(f"{n}. {line(turn, 2_000)}" for n, turn in enumerate(turns, start=1))
    return (
        "Write what is worth keeping of this exchange into the memories, each entry with the number of its turn: core "
        "(who the user is, and what they prefer), episodic (what happened when), semantic (what is known of people "
        "and things), procedural (how something is done), resource (documents, code, pictures), vault (addresses, "
        f"numbers and secrets, to the letter).\n\n{lines}"
    )


def make(config: Config) -> Mirix:
    return Mirix()
