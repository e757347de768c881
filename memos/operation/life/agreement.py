"""Compares memories with each other: which say the same, which contradict, what is stale or unsupported.

Knows what memories say; changes nothing, and must not know who may see them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memos.cube import Fact, MemCube, Text, Turn, plain
from memos.errors import InputError
from memos.operation.life.currency import contradicts, facts_out_of_force, stated

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.ops import Add, Correct


class StatementReader(Protocol):
    """What is asked of language here: what a text states, and of which sentences it consists."""

    def statement(self, text: str, speaker: str = "") -> Add | Correct: ...

    def says_no_more(self, text: str, speaker: str = "") -> bool:
        """True if a text says nothing beside facts that can be read in it."""
        ...

    def sentences(self, text: str) -> list[str]: ...


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


class Agreement:
    """Compares memories of one vault."""

    def __init__(self, vault: MemVault, reader: StatementReader) -> None:
        self._vault, self._reader = vault, reader

    def meaning(self, cube: MemCube) -> object:
        """The same for memories that say the same: the same facts and nothing beside them, or the same words. What is
        no lasting fact must have been said on the same day, in the same conversation: it may have happened again."""
        payload, day = text_of(cube), cube.header.said
        if not payload.facts or payload.more:
            return plain(payload.text), day and day.date(), cube.header.thread
        return (
            _as_stated(payload.facts)
            if self._reader.says_no_more(payload.text, cube.header.speaker)
            else plain(payload.text)
        )

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
            whose = cube.namespace, cube.rights, cube.header.speaker, cube.header.expires
            groups[whose, self.meaning(cube)].append(cube)
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
        read = {
            (f.subject, f.relation, f.object) for f in self._reader.statement(payload.text, cube.header.speaker).facts
        }
        sources = [self._vault.get(s.id, s.version) for s in cube.sources]
        stated_before = {(f.subject, f.relation, f.object) for source in sources for f in stated(source)}
        words = plain(payload.text)
        return all(
            (f.subject, f.relation, f.object) in read | stated_before or plain(f.object) in words for f in payload.facts
        )


def text_of(cube: MemCube) -> Text:
    """The payload of a plaintext cube. Raises InputError for a derived one, and for a turn of a conversation."""
    if isinstance(cube.payload, Turn):
        raise InputError(f"cube {cube.id} is a turn of a conversation, and no memory; name one that `memos ls` lists")
    if not isinstance(cube.payload, Text):
        raise InputError(
            f"cube {cube.id} is {cube.form}: it holds no text of its own; name the memories it was made from"
        )
    return cube.payload


def _by_subject(cubes: Iterable[MemCube]) -> list[list[tuple[Fact, MemCube]]]:
    """The facts of each relation of each subject in a namespace, in the order of their saying."""
    groups: dict[object, list[tuple[Fact, MemCube]]] = defaultdict(list)
    for cube in sorted(cubes, key=lambda cube: cube.order):
        for fact in stated(cube):
            groups[cube.namespace, fact.subject.casefold(), fact.relation].append((fact, cube))
    return list(groups.values())


def _as_stated(facts: Iterable[Fact]) -> frozenset[tuple[str, str, str, str]]:
    """What facts say: "is" and "now" say the same of what holds."""
    return frozenset(
        (f.subject.casefold(), f.relation, f.object.casefold(), "is" if f.mode == "now" else f.mode) for f in facts
    )
