"""The calls that change states and go back: versions, states, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.cube import MemCube, State, Text
from memos.kernel.access import Service
from memos.operation.life.time_machine import diff, restore
from memos.ops import ChangeState, DeleteSnapshot, History, ListSnapshots, Restore, Rollback, TakeSnapshot

if TYPE_CHECKING:
    from memos.infrastructure.vault.tables.set_aside import Snapshot
    from memos.operation.life.time_machine import Restored
    from memos.rights import Caller


class Life(Service):
    """diff, rollback, freeze, thaw, archive, unarchive, snapshot, restore."""

    def diff(self, caller: Caller, id: str, a: int, b: int) -> list[str]:
        """What version b of a cube says in other words than version a: lines with "-", "+" or a blank before them."""
        cube = self._access.cube(caller, History(id=id), id)
        return diff(self._vault, cube.id, a, b, self._access.as_read(caller))

    def rollback(self, caller: Caller, id: str, version: int) -> MemCube:
        """Bring back what an old version said, as a new version; what was derived from the current one is stale.

        Raises NotFound, and BadTransition for a memory that is frozen or expired.
        """
        cube = self._access.cube(caller, Rollback(id=id, version=version), id)
        with self._vault.transaction():
            new = self._lifecycle.rollback(cube.id, version)
            self._knowledge.examine(new, new=False)
        return self._freshness.changed(self._vault.get(new.id))

    def freeze(self, caller: Caller, id: str, *, why: str = "frozen") -> MemCube:
        """Lock a memory: it answers, and is neither edited, deleted nor archived for idleness. Raises BadTransition."""
        return self._move(caller, id, None, State.FROZEN, why)

    def thaw(self, caller: Caller, id: str, *, why: str = "thawed") -> MemCube:
        """Unlock a frozen memory. Raises BadTransition."""
        return self._move(caller, id, State.FROZEN, State.ACTIVATED, why)

    def archive(self, caller: Caller, id: str, *, why: str = "archived") -> MemCube:
        """Put a memory out of use, with all that is derived from it. Raises BadTransition."""
        return self._move(caller, id, None, State.ARCHIVED, why)

    def unarchive(self, caller: Caller, id: str, *, why: str = "brought back") -> MemCube:
        """Bring an archived memory back into use. Raises BadTransition, and Conflict for a stale derived one."""
        return self._move(caller, id, State.ARCHIVED, State.ACTIVATED, why)

    def _move(self, caller: Caller, id: str, before: State | None, to: State, why: str) -> MemCube:
        cube = self._access.cube(caller, ChangeState(id=id, to=to), id)
        return self._freshness.changed(self._lifecycle.move(cube.id, to, why, before))

    def snapshot(self, caller: Caller, name: str) -> Snapshot:
        """Write down the version and state of each memory of the user, to go back to. Raises InputError."""
        self._governance.permit(caller, TakeSnapshot(name=name))
        return self._vault.snapshots.take(caller.namespace, name)

    def snapshots(self, caller: Caller) -> list[Snapshot]:
        """The user's snapshots, oldest first."""
        self._governance.permit(caller, ListSnapshots())
        return self._vault.snapshots.all(caller.namespace)

    def restore(self, caller: Caller, name: str) -> Restored:
        """Take all memories of the user back to a snapshot, by new versions and moves.

        A snapshot is taken before, so that this can be undone. Raises NotFound.
        """
        self._governance.permit(caller, Restore(name=name))
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
        self._governance.permit(caller, DeleteSnapshot(name=name))
        self._vault.snapshots.delete(caller.namespace, name)
