"""The life of a cube: which state may follow which, and what a change does to the cubes derived from it.

Knows states, versions and lineage; the only writer of state. Must not know ranking or language.
A derived cube never outlives the truth of its sources: each method here reaches derived cubes in its own transaction.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from memos.cube import Form, MemCube, State, Text
from memos.errors import BadTransition, Conflict, InputError, NotFound
from memos.infrastructure.mem_vault import MemVault

ALLOWED: dict[State, frozenset[State]] = {
    State.GENERATED: frozenset({State.ACTIVATED, State.ARCHIVED, State.FROZEN}),  # archived: given up unused
    State.ACTIVATED: frozenset({State.MERGED, State.ARCHIVED, State.FROZEN}),
    State.MERGED: frozenset({State.ARCHIVED, State.FROZEN}),  # to undo a merge: archive, then activate
    # the only way to EXPIRED is through the archive, from where a memory can still be brought back
    State.ARCHIVED: frozenset({State.ACTIVATED, State.EXPIRED, State.FROZEN}),
    State.EXPIRED: frozenset(),  # the end; only deletion is left
    State.FROZEN: frozenset({State.ACTIVATED, State.ARCHIVED}),  # a thaw
}
GONE = frozenset({State.ARCHIVED, State.EXPIRED})  # a cube here answers nothing, nor does one derived from it
LOCKED = frozenset({State.FROZEN, State.EXPIRED})  # no new version


class MemLifecycle:
    """Every change of a cube's state or content. A version counts content only: a move makes none."""

    def __init__(self, vault: MemVault) -> None:
        self._vault = vault

    def create(self, cube: MemCube) -> MemCube:
        """Keep a new cube. Raises BadTransition unless it is GENERATED, Conflict unless it is new."""
        if cube.state is not State.GENERATED:
            raise BadTransition(f"cube {cube.id} cannot begin as {cube.state}; create it as generated, then move it")
        if cube.version != 1:
            raise Conflict(f"cube {cube.id} cannot begin at version {cube.version}; create version 1, or edit()")
        self._vault.put(cube)
        return cube

    def move(self, id: str, to: State, why: str) -> MemCube:
        """Change the state. Out of use, a source takes its derived cubes along; into use, a derived cube must be fresh.

        Raises BadTransition, or Conflict for a derived cube whose source has changed.
        """
        with self._vault.transaction():
            cube = self._vault.get(id)
            if to not in ALLOWED[cube.state]:
                allowed = ", ".join(sorted(ALLOWED[cube.state])) or "nothing; only deletion is left"
                raise BadTransition(f"cube {cube.id} is {cube.state} and cannot become {to}; allowed: {allowed}")
            if to not in GONE:
                self._require_fresh(cube)
            self._vault.set_state(cube.id, to, why)
            if to in GONE:
                self._retire_derived(cube, f"source {cube.id} {to}")
            return self._vault.get(cube.id)

    def edit(self, id: str, payload: Text, segment: str | None = None) -> MemCube:
        """A new version with this payload, in `segment` if given; derived cubes are archived.

        Raises BadTransition when frozen or expired.
        """
        with self._vault.transaction():
            cube = self._vault.get(id)
            if cube.state in LOCKED:
                way_out = "thaw it with a move to activated" if cube.state is State.FROZEN else "add it as a new memory"
                raise BadTransition(f"cube {cube.id} is {cube.state} and cannot be edited; {way_out}")
            if cube.form is not Form.PLAINTEXT:
                raise InputError(f"cube {cube.id} ({cube.form}) is derived; edit its sources and promote them again")
            changed = {"changed": datetime.now(timezone.utc)} | ({} if segment is None else {"segment": segment})
            header = cube.header.model_copy(update=changed)
            self._vault.put(cube.model_copy(update={"version": cube.version + 1, "payload": payload, "header": header}))
            self._retire_derived(cube, f"source {cube.id} edited")
            return self._vault.get(cube.id)

    def rollback(self, id: str, version: int) -> MemCube:
        """Bring an old payload back as a new version: nothing of the history is lost."""
        with self._vault.transaction():
            old = self._vault.get(id, version).payload
            if not isinstance(old, Text):
                raise InputError(f"cube {id} is derived; roll back its sources and promote them again")
            return self.edit(id, old)

    def delete(self, id: str) -> list[str]:
        """Remove a cube and all that derives from it; the ids removed. Raises BadTransition when it is frozen.

        A frozen derived cube goes too: its freeze must not keep somebody else's memory from being deleted.
        """
        with self._vault.transaction():
            cube = self._vault.get(id)
            if cube.state is State.FROZEN:
                raise BadTransition(f"cube {cube.id} is frozen and cannot be deleted; thaw it with a move to activated")
            ids = [cube.id, *(other.id for other in self._vault.derived(cube.id))]
            self._vault.delete(ids)
        return ids

    def publish(self, cube: MemCube) -> MemCube:
        """Keep a derived cube and activate it, if its sources are still what it was made from.

        Raises Conflict when one was edited, archived or deleted while the cube was being built.
        """
        if not cube.sources:
            raise InputError(f"cube {cube.id} names no sources, so it is not derived; create() it")
        with self._vault.transaction():
            self._require_fresh(cube)
            self.create(cube)
            return self.move(cube.id, State.ACTIVATED, "published")

    def history(self, id: str) -> list[dict[str, Any]]:
        """Versions and transitions in time order, ready for JSON."""
        events = [
            (at, {"event": "version", "version": cube.version, "payload": cube.payload.model_dump(mode="json")})
            for at, cube in self._vault.written(id)
        ]
        events += [
            (at, {"event": "state", "state": str(to), "why": why}) for at, to, why in self._vault.transitions(id)
        ]
        return [{"at": at.isoformat(), **event} for at, event in sorted(events, key=lambda pair: pair[0])]

    def _require_fresh(self, cube: MemCube) -> None:
        """Compare and swap: a derived cube is used only over the versions that it was made from."""
        for source in cube.sources:
            try:
                now = self._vault.get(source.id)
            except NotFound:
                raise Conflict(f"cube {cube.id} is stale: source {source.id} was deleted; drop it") from None
            if now.version != source.version:
                found = f"is at version {now.version}, not {source.version}"
            elif now.state in GONE:
                found = f"is {now.state}"
            else:
                continue
            raise Conflict(f"cube {cube.id} is stale: source {source.id} {found}; promote the sources again")

    def _retire_derived(self, cube: MemCube, why: str) -> None:
        # Past ALLOWED on purpose, so that even a frozen one goes: a freeze pins a cube, not a truth that is gone.
        for derived in self._vault.derived(cube.id):
            if derived.state not in GONE:
                self._vault.set_state(derived.id, State.ARCHIVED, why)
