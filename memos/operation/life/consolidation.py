"""Holds memories against each other: fuses, splits, and tells which repeat, contradict or lack support.

Knows what memories say and where they come from. Must not know who may see them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from memos.cube import Fact, MemCube, State, Text, new_cube, plain
from memos.errors import InputError
from memos.operation.life.knowledge import Knowledge, StatementReader, contradicts, facts_out_of_force, stated, text_of
from memos.operation.life.mem_lifecycle import LOCKED, MemLifecycle

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault


@dataclass(frozen=True)
class Disagreement:
    """Two memories in force of which only one can be true, the older first."""

    one: MemCube
    other: MemCube
    facts: tuple[Fact, Fact]


@dataclass(frozen=True)
class MemoryAudit:
    """What is wrong with memories in force, by their ids.

    duplicates: each that says what an older one says. stale: each with a fact that a later one has replaced or denies.
    unsupported: each that is said to state what stands neither in its text nor in what it was made of.
    """

    memories: int
    duplicates: tuple[str, ...]
    stale: tuple[str, ...]
    unsupported: tuple[str, ...]

    def share(self, ids: Sequence[str]) -> float:
        return len(ids) / self.memories if self.memories else 0.0


class Consolidation:
    """Works on the memories of one caller, who may see and change them."""

    def __init__(self, vault: MemVault, lifecycle: MemLifecycle, reader: StatementReader, knowledge: Knowledge) -> None:
        self._vault, self._lifecycle, self._reader, self._knowledge = vault, lifecycle, reader, knowledge

    def fuse(self, cubes: Sequence[MemCube], text: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what each of them says, once.

        Raises InputError for less than two, or for memories of different owners, BadTransition for one out of use.
        """
        by_text = {plain(text_of(cube).text): text_of(cube) for cube in sorted(cubes, key=lambda cube: cube.order)}
        distinct = sorted({cube.id: cube for cube in cubes}.values(), key=lambda cube: cube.order)
        if len(distinct) < 2:
            one = "".join(f", {cube.id}," for cube in distinct) or " or none"
            raise InputError(f"one memory{one} cannot be fused; name two or more")
        first, *others = distinct
        if any((cube.namespace, cube.rights) != (first.namespace, first.rights) for cube in others):
            raise InputError("memories of different users or readers cannot become one; fuse those of one at a time")
        if len({cube.header.expires for cube in cubes}) > 1:
            raise InputError("memories that expire at different times cannot become one; add them anew with one time")
        payload = Text(
            text=" ".join(payload.text for payload in by_text.values()),
            facts=tuple(dict.fromkeys(fact for payload in by_text.values() for fact in payload.facts)),
            more=any(payload.more or not payload.facts for payload in by_text.values()),
            probes=tuple(dict.fromkeys(probe for payload in by_text.values() for probe in payload.probes)),
        )
        if text is not None:
            read = self._reader.statement(text, first.header.speaker)
            payload = payload.model_copy(update={"text": read.text, "facts": read.facts, "more": read.more})
        with self._vault.transaction():
            [made] = self._lifecycle.merge([_made(payload, (first, *others), self._vault.now())])
            self._knowledge.examine(made)
            return self._vault.get(made.id)

    def split(self, cube: MemCube, parts: Sequence[str] = ()) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or a part for each of its sentences. One that was made of
        others goes back to them.

        Raises InputError where there is but one part, or no memory but a turn of a conversation.
        """
        if not parts and any(source.state is State.MERGED for source in self._lifecycle.sources_of([cube])):
            return self._lifecycle.unmerge(cube.id)
        whole = text_of(cube)  # not of a turn, whose parts would be readable to fewer than may write them
        sentences = parts or self._reader.sentences(whole.text)
        if len(sentences) < 2:
            raise InputError(f"cube {cube.id} says one thing; give the parts that it should have")
        read = [self._reader.statement(part, cube.header.speaker) for part in sentences]
        now = self._vault.now()
        parts_of = [_made(Text(text=op.text, facts=op.facts, more=op.more), [cube], now, op.segment) for op in read]
        with self._vault.transaction():
            made = self._lifecycle.merge(parts_of)
            for part in made:
                self._knowledge.examine(part, new=False)
            self._knowledge.require_room(cube.namespace)
            return self._vault.at(part.id for part in made)

    def consolidate(self, cubes: Iterable[MemCube]) -> list[MemCube]:
        """Each group of memories that say the same becomes one, with all of them as its sources; those made."""
        made = []
        for group in self.duplicates(cube for cube in cubes if cube.state not in LOCKED):
            probes = tuple(dict.fromkeys(p for c in group for p in text_of(c).probes))
            payload = text_of(group[0]).model_copy(update={"probes": probes})
            made += self._lifecycle.merge([_made(payload, group, self._vault.now())])
        return made

    def conflicts(self, cubes: Iterable[MemCube]) -> list[Disagreement]:
        """Where two memories give different values to what has one value at a time."""
        return [
            Disagreement(one, other, (fact, against))
            for group in _by_subject(cubes)
            for n, (against, other) in enumerate(group)
            for fact, one in group[:n]
            if one.id != other.id and contradicts(fact, against)
        ]

    def duplicates(self, cubes: Iterable[MemCube]) -> list[tuple[MemCube, ...]]:
        """Groups of memories that say the same, oldest first."""
        groups: dict[object, list[MemCube]] = defaultdict(list)
        for cube in sorted(cubes, key=lambda cube: cube.order):
            whose = cube.namespace, cube.rights, cube.header.speaker, cube.header.expires, cube.stored
            groups[whose, self._knowledge.meaning(cube)].append(cube)
        return [tuple(group) for group in groups.values() if len(group) > 1]

    def audit(self, cubes: Sequence[MemCube]) -> MemoryAudit:
        """cubes: memories in force."""
        stale = {found.one.id for found in self.conflicts(cubes)}
        for group in _by_subject(cubes):
            beside = [cube for _, cube in group]
            stale |= {cube.id for cube in beside if facts_out_of_force(cube, beside)}
        return MemoryAudit(
            len(cubes),
            tuple(cube.id for group in self.duplicates(cubes) for cube in group[1:]),
            tuple(cube.id for cube in cubes if cube.id in stale),
            tuple(cube.id for cube in cubes if not self._is_supported(cube)),
        )

    def _is_supported(self, cube: MemCube) -> bool:
        """True if the text says what the cube is said to state, and, where it was made of others, so do they."""
        payload = text_of(cube)
        known = _claims(self._reader.statement(payload.text, cube.header.speaker).facts)
        for source in cube.sources:
            known |= _claims(stated(self._vault.get(source.id, source.version)))
        words = plain(payload.text)
        return all(claim in known or plain(claim[-1]) in words for claim in _claims(payload.facts))


def _claims(facts: Iterable[Fact]) -> set[tuple[str, str, str]]:
    return {(fact.subject, fact.relation, fact.object) for fact in facts}


def _by_subject(cubes: Iterable[MemCube]) -> list[list[tuple[Fact, MemCube]]]:
    """The facts of each relation of each subject in a namespace, in the order of their saying."""
    groups: dict[object, list[tuple[Fact, MemCube]]] = defaultdict(list)
    for cube in sorted(cubes, key=lambda cube: cube.order):
        for fact in stated(cube):
            groups[cube.namespace, fact.subject.casefold(), fact.relation].append((fact, cube))
    return list(groups.values())


def _made(payload: Text, sources: Sequence[MemCube], created: datetime, segment: str | None = None) -> MemCube:
    """A memory made of others, oldest first, with what is known of the oldest: said later, it would overrule what has
    replaced a part of it since."""
    first = sources[0]
    changed: dict[str, object] = {"created": created, "changed": None, "origin": "merge", "said": first.order[0]}
    changed["tags"] = tuple(dict.fromkeys(tag for cube in sources for tag in cube.header.tags))
    header = first.header.model_copy(update=changed | ({} if segment is None else {"segment": segment}))
    pins = tuple(cube.pin for cube in sources)
    return new_cube(first.namespace, header, payload, rights=first.rights, sources=pins)
