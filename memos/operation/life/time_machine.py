"""Tells what has become of a memory, and takes a namespace back to a snapshot by new versions and moves.

Knows versions, lineage and states, and changes them through the life cycle alone. Must not know language or ranking.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from memos.cube import ANSWERING, GONE, Blob, MemCube, Namespace, State, Text, Turn
from memos.errors import Conflict
from memos.infrastructure.vault.tables.set_aside import LONGEST

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.life.mem_lifecycle import MemLifecycle

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
_RESTORED = "restored to the snapshot "  # a reason; the name follows
Event = dict[str, Any]  # ready for JSON
AsRead = Callable[[MemCube], MemCube]  # a version -> as it may be told


@dataclass(frozen=True)
class Restored:
    """What a way back did, in ids.

    undo: the snapshot that was taken before. changed: texts that say what they said, or are in the state that they
    were in. archived: what was made since. revived: derived cubes in use again; stale: those that are not, as a source
    is not what it was. kept: what is locked or expired, and so stayed another than it was. missing: how many cubes of
    the snapshot were deleted since.
    """

    undo: str
    changed: list[str] = field(default_factory=list)
    archived: list[str] = field(default_factory=list)
    revived: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    missing: int = 0


def as_of(vault: MemVault, user: str, true_at: datetime, known_at: datetime) -> list[MemCube]:
    """The memories that held at one time, as far as they were known at another, as they read then."""
    ended = vault.superseded.of_user(user, known_at)
    return [
        cube
        for cube in vault.superseded.known(user, known_at)
        if cube.order[0] <= true_at
        and not (cube.header.expires and cube.header.expires <= true_at)
        and (
            cube.state in ANSWERING
            or (cube.id in ended and ended[cube.id] > true_at)
            or (cube.state is State.EXPIRED and cube.header.expires)  # later than that time
        )
    ]


def restore(vault: MemVault, lifecycle: MemLifecycle, owner: Namespace, name: str) -> Restored:
    """Take the cubes that belong to the owner back: at the old payload, as a new version, and in the old state, by new
    moves.

    Nothing of the history is lost, and a snapshot is taken before, so that this can be undone. What was deleted stays
    deleted, what has expired stays so, and what is frozen now is left alone. Raises NotFound.
    """
    name = vault.guard.as_written(name)  # as the vault knows it
    with vault.transaction():
        was, snapshots = vault.snapshots.of(owner, name), vault.snapshots.all(owner)
        [missing] = [s.missing for s in snapshots if s.name == name]
        undo = _unused_name(f"before restore of {name}"[: LONGEST - 8], {s.name for s in snapshots})
        back = _Back(vault, lifecycle, name, Restored(undo, missing=missing))
        now = vault.owned(owner)
        vault.snapshots.take(owner, undo)
        for cube in _sources_first(now):
            back.bring(cube, was.get(cube.id))
        # what they lived on in may have been deleted since, or could not be brought back
        lifecycle.let_out(vault.owned(owner))
        return back.done


def _unused_name(wanted: str, taken: Collection[str]) -> str:
    names = itertools.chain([wanted], (f"{wanted} ({n})" for n in itertools.count(2)))
    return next(name for name in names if name not in taken)


@dataclass(frozen=True)
class _Back:
    """One way back to the snapshot `name`."""

    vault: MemVault
    lifecycle: MemLifecycle
    name: str
    done: Restored

    def bring(self, cube: MemCube, was: tuple[int, State] | None) -> None:
        """was: the version and state to go back to; None: there was no such cube."""
        if cube.sources:
            cube = self.vault.get(cube.id)  # it may have gone out of use with a source
        if was is None:
            self._put_aside(cube)
            return
        version, state = was
        same = self._says_the_same(cube, version)
        if self._is_locked(cube):
            if state is not cube.state or not same:
                self.done.kept.append(cube.id)
        elif cube.sources:
            if isinstance(cube.payload, Text) and not same:
                cube = self.lifecycle.rollback(cube.id, version)
                self.done.changed.append(cube.id)
            self._bring_derived(cube, state)
        else:
            if not same and cube.state is State.FROZEN:
                self.lifecycle.move(cube.id, State.ACTIVATED, self._why)
            brought = cube if same else self.lifecycle.rollback(cube.id, version)
            if self._lead(brought, state) != cube:
                self.done.changed.append(cube.id)

    def _put_aside(self, cube: MemCube) -> None:
        if cube.state in GONE:
            return
        if self._is_locked(cube):
            self.done.kept.append(cube.id)
        else:
            self.lifecycle.move(cube.id, State.ARCHIVED, f"made after the snapshot {self.name}")
            self.done.archived.append(cube.id)

    def _bring_derived(self, cube: MemCube, to: State) -> None:
        if to in GONE:
            if self._lead(cube, to) != cube:
                self.done.archived.append(cube.id)
            return
        try:
            if cube.state in GONE:
                self.lifecycle.revive(cube.id, to, self._why)
                self.done.revived.append(cube.id)
            elif self._lead(cube, to) != cube:
                self.done.changed.append(cube.id)
        except Conflict:  # a source is deleted, expired, frozen at other words, or was stale at that time already
            self.done.stale.append(cube.id)

    def _lead(self, cube: MemCube, to: State) -> MemCube:
        return self.lifecycle.lead(cube.id, to, self._why)

    def _is_locked(self, cube: MemCube) -> bool:
        """Expired, in quarantine, held, or frozen by somebody: what an earlier way back froze can be undone."""
        if self.vault.quarantine.of([cube.id]) or self.vault.holds.of([cube.id]):
            return True
        if cube.state is not State.FROZEN:
            return cube.state is State.EXPIRED
        _, _, why = self.vault.transitions(cube.id)[-1]
        return not why.startswith(_RESTORED)

    def _says_the_same(self, cube: MemCube, version: int) -> bool:
        if version == cube.version:
            return True
        old = self.vault.get(cube.id, version)
        return (old.payload, old.header.segment) == (cube.payload, cube.header.segment)

    @property
    def _why(self) -> str:
        return _RESTORED + self.name


def _sources_first(cubes: Iterable[MemCube]) -> list[MemCube]:
    """Each after those of the cubes that it is derived from."""
    known = {cube.id: cube for cube in cubes}
    order = TopologicalSorter({c.id: [s.id for s in c.sources if s.id in known] for c in known.values()})
    return [known[id] for id in order.static_order()]


def history(vault: MemVault, id: str, diffs: bool = False, as_read: AsRead = lambda cube: cube) -> list[Event]:
    """Versions, transitions and when it was told again, in time order, ready for JSON; with diffs, how each version
    differs from the one before it. as_read: a version as it may be told."""
    written = [(at, as_read(version)) for at, version in vault.written(id)]
    events: list[tuple[datetime, Event]] = [
        (at, {"event": "version", "version": cube.version, "payload": cube.payload.model_dump(mode="json")})
        for at, cube in written
    ]
    if diffs:
        for (_, event), (_, old), (_, new) in zip(events[1:], written, written[1:], strict=False):
            event["diff"] = _difference(old, new)
    events += [(at, {"event": "state", "state": str(to), "why": why}) for at, to, why in vault.transitions(id)]
    events += [
        (at, {"event": "told again", "said": said and said.isoformat(), "origin": origin})
        for at, said, origin in vault.usage.repeats(id)
    ]
    return [{"at": at.isoformat(), **event} for at, event in sorted(events, key=lambda pair: pair[0])]


def diff(vault: MemVault, id: str, a: int, b: int, as_read: AsRead = lambda cube: cube) -> list[str]:
    """What version b says in other words than version a, sentence by sentence and fact by fact: lines that begin
    with "-", "+" or a blank; none where they say the same. as_read: see `history`. Raises NotFound."""
    return _difference(as_read(vault.get(id, a)), as_read(vault.get(id, b)))


def _difference(old: MemCube, new: MemCube) -> list[str]:
    lines = difflib.unified_diff(_lines(old), _lines(new), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _lines(cube: MemCube) -> list[str]:
    """What a version says, a line for each thing."""
    lines = [f"in force until {cube.header.expires.isoformat()}"] if cube.header.expires else []
    match cube.payload:
        case Text(text=text, facts=facts, probes=probes):
            lines += [sentence for sentence in _SENTENCE_END.split(text) if sentence]
            lines += [f"fact: {f.subject} | {f.relation} | {f.object}" for f in facts]
            lines += [f"probe: {p.question} | {p.answer}" for p in probes]
        case Turn(question=question, answer=answer):
            lines += [f"question: {question}", f"answer: {answer}"]
        case Blob(sha256=sha256):
            lines += [f"payload: {sha256}", *(f"source: {s.id} version {s.version}" for s in cube.sources)]
    return lines
