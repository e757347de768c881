"""The calls that change states and go back, and that keep what is known current: tags, feedback, fusing, conflicts."""

from __future__ import annotations

from datetime import datetime, time, timezone
from typing import TYPE_CHECKING

from memos import ops
from memos.cube import MemCube, State, Text
from memos.errors import InputError, NotFound
from memos.kernel.access import SAID, Service, Summing
from memos.kernel.services.keeping import checked_tags
from memos.operation.life.consolidation import Disagreement, MemoryAudit
from memos.operation.life.knowledge import text_of
from memos.operation.life.time_machine import diff, restore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memos.infrastructure.vault.tables.set_aside import Snapshot
    from memos.kernel.wiring import Parts
    from memos.operation.life.time_machine import Restored
    from memos.rights import Caller


class Life(Service):
    """diff, rollback, freeze, thaw, archive, unarchive, snapshot, restore; tag, feedback, fuse, split, consolidate,
    reinstate, conflicts, audit_memory."""

    def __init__(self, parts: Parts, summing: Summing) -> None:
        super().__init__(parts)
        self._summing = summing

    def diff(self, caller: Caller, id: str, a: int, b: int) -> list[str]:
        """What version b of a cube says in other words than version a: lines with "-", "+" or a blank before them."""
        cube = self._access.cube(caller, ops.History(id=id), id)
        return diff(self._vault, cube.id, a, b, self._access.as_read(caller))

    def rollback(self, caller: Caller, id: str, version: int) -> MemCube:
        """Bring back what an old version said, as a new version; what was derived from the current one is stale.

        Raises NotFound, and BadTransition for a memory that is frozen or expired.
        """
        cube = self._access.cube(caller, ops.Rollback(id=id, version=version), id)
        with self._vault.transaction():
            new = self._lifecycle.rollback(cube.id, version)
            self._knowledge.examine(new, new=False)
        return self._freshness.changed(self._vault.get(new.id))

    def version_meant(self, to: str | int, cube: MemCube) -> int:
        """The version that is named by its number, by its day, or as the previous one. Raises NotFound."""
        if isinstance(to, int):
            return to
        if to in ("", "previous"):
            if cube.version < 2:
                raise NotFound(f"cube {cube.id} has one version, and none before it; there is nothing to go back to")
            return cube.version - 1
        day = datetime.combine(datetime.fromisoformat(to).date(), time.max, timezone.utc)
        then = [version.version for when, version in self._vault.written(cube.id) if when <= day]
        if not then:
            raise NotFound(f"cube {cube.id} was not there on {to}; look at `memos history {cube.id}`")
        return then[-1]

    def freeze(self, caller: Caller, id: str, *, why: str = "frozen") -> MemCube:
        """Lock a memory: it answers, and is neither edited, deleted nor archived for idleness. Raises BadTransition."""
        return self._move(caller, id, State.FROZEN, why)

    def thaw(self, caller: Caller, id: str, *, why: str = "thawed") -> MemCube:
        """Unlock a frozen memory, or warm a cold one. Raises BadTransition."""
        return self._move(caller, id, State.ACTIVATED, why, State.FROZEN, State.COLD)

    def archive(self, caller: Caller, id: str, *, why: str = "archived") -> MemCube:
        """Put a memory out of use, with all that is derived from it. Raises BadTransition."""
        return self._move(caller, id, State.ARCHIVED, why)

    def unarchive(self, caller: Caller, id: str, *, why: str = "brought back") -> MemCube:
        """Bring an archived memory back into use. Raises BadTransition, and Conflict for a stale derived one."""
        return self._move(caller, id, State.ACTIVATED, why, State.ARCHIVED)

    def _move(self, caller: Caller, id: str, to: State, why: str, *before: State) -> MemCube:
        cube = self._access.cube(caller, ops.ChangeState(id=id, to=to), id)
        return self._freshness.changed(self._lifecycle.move(cube.id, to, why, *before))

    def snapshot(self, caller: Caller, name: str) -> Snapshot:
        """Write down the version and state of each memory of the user, to go back to. Raises InputError."""
        self._governance.permit(caller, ops.TakeSnapshot(name=name))
        return self._vault.snapshots.take(caller.namespace, name)

    def snapshots(self, caller: Caller) -> list[Snapshot]:
        """The user's snapshots, oldest first."""
        self._governance.permit(caller, ops.ListSnapshots())
        return self._vault.snapshots.all(caller.namespace)

    def restore(self, caller: Caller, name: str) -> Restored:
        """Take all memories of the user back to a snapshot, by new versions and moves.

        A snapshot is taken before, so that this can be undone. Raises NotFound.
        """
        self._governance.permit(caller, ops.Restore(name=name))
        namespace = caller.namespace
        with self._vault.transaction():
            before = {cube.id: cube.version for cube in self._vault.owned(namespace)}
            restored = restore(self._vault, self._lifecycle, namespace, name)
            for cube in self._vault.owned(namespace):
                if isinstance(cube.payload, Text) and cube.version != before[cube.id]:
                    self._knowledge.examine(cube, new=False)
        return self._freshness.changed(restored)

    def delete_snapshot(self, caller: Caller, name: str) -> None:
        """Forget a snapshot; the memories stay. Raises NotFound."""
        self._governance.permit(caller, ops.DeleteSnapshot(name=name))
        self._vault.snapshots.delete(caller.namespace, name)

    # what is known is kept current

    def tag(self, caller: Caller, id: str, tags: Sequence[str]) -> MemCube:
        """Give a memory these tags, in place of those that it has.

        "always": every request sees it, as far as there is room. "apart:NAME": no request sees two memories that are
        apart by the same name; the one that is found nearer is seen. Others mean what you like. Raises InputError,
        BadTransition.
        """
        given = checked_tags(tags)
        cube = self._access.cube(caller, ops.Tag(id=id, tags=given), id)
        text_of(cube)
        return self._freshness.changed(self._lifecycle.edit(cube.id, tags=given))

    def feedback(self, caller: Caller, id: str, useful: float) -> MemCube:
        """Say how much a memory has helped, from -1 to 1: what helps is found sooner (`retrieval.useful`), and stays
        longer. Raises InputError, Denied."""
        if not -1 <= useful <= 1:
            raise InputError(f"useful {useful:g} is not from -1 (it misled) to 1 (it was just what was needed)")
        cube = self._access.cube(caller, ops.Rate(id=id, useful=useful), id)
        self._vault.usage.rate(cube.id, useful, self._config.retrieval.learning)
        return self._freshness.changed(self._vault.get(cube.id))

    def fuse(self, caller: Caller, ids: Sequence[str], text: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what they say. `split` undoes it; what
        becomes of one of them reaches it. Raises InputError, BadTransition."""
        op = ops.Fuse(ids=tuple(ids), text=text)
        cubes = [self._access.cube(caller, op, id) for id in ids]
        return self._freshness.changed(self._consolidation.fuse(cubes, text))

    def split(self, caller: Caller, id: str, parts: Sequence[str] = ()) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or its sentences; one that was made of others, back to them.
        Raises InputError, BadTransition."""
        cube = self._access.cube(caller, ops.Split(id=id, parts=tuple(parts)), id)
        return self._freshness.changed(self._consolidation.split(cube, parts))

    def consolidate(self, caller: Caller) -> list[MemCube]:
        """Make one of each group of memories that say the same, and sum up long conversations; those made. Turns of
        conversations stay as they are."""
        self._governance.permit(caller, ops.Fuse(ids=()))
        own = [c for c in self._access.texts(caller) if c.rights.owner == caller.user_id]
        made = self._consolidation.consolidate(c for c in own if c.header.kind not in SAID)
        return (self._freshness.changed(made) if made else made) + self._summing.sum_up(caller)

    def reinstate(self, caller: Caller, id: str) -> MemCube:
        """Bring back a memory that another has replaced; the other stays. Raises BadTransition."""
        cube = self._access.cube(caller, ops.Reinstate(id=id), id)
        return self._freshness.changed(self._lifecycle.reinstate(cube.id))

    def conflicts(self, caller: Caller) -> list[Disagreement]:
        """Pairs of memories in force of which only one can be true."""
        return self._consolidation.conflicts(self._access.texts(caller))

    def audit_memory(self, caller: Caller) -> MemoryAudit:
        """Which memories in force are told twice, overtaken, or not supported by what they were made of."""
        return self._consolidation.audit(self._access.texts(caller))
