"""Public calls that go back: versions, states, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.cube import MemCube, State, Text
from memos.kernel.wiring import Parts
from memos.operation.life.time_machine import Restored
from memos.ops import ChangeState, DeleteSnapshot, History, ListSnapshots, Restore, Rollback, TakeSnapshot

if TYPE_CHECKING:
    from memos.infrastructure.vault.tables.snapshot_table import Snapshot


class Life(Parts):
    """rollback, freeze, archive, snapshot, restore."""

    def diff(self, id: str, a: int, b: int, *, user: str | None = None) -> list[str]:
        """What version b of a cube says in other words than version a: lines with "-", "+" or a blank before them."""
        cube = self._visible(History(id=id), id, user)
        return self.lifecycle.diff(cube.id, a, b, self._as_read(self._caller(user)))

    def rollback(self, id: str, version: int, *, user: str | None = None) -> MemCube:
        """Bring back what an old version said, as a new version; what was derived from the current one is stale.

        Raises NotFound, and BadTransition for a memory that is frozen or expired.
        """
        cube = self._visible(Rollback(id=id, version=version), id, user)
        with self.vault.transaction():
            new = self.lifecycle.rollback(cube.id, version)
            self.knowledge.examine(new, new=False)
        return self._changed(self.vault.get(new.id))

    def freeze(self, id: str, *, why: str = "frozen", user: str | None = None) -> MemCube:
        """Lock a memory: it answers, and is neither edited, deleted nor archived for idleness. Raises BadTransition."""
        return self._move(id, None, State.FROZEN, why, user)

    def thaw(self, id: str, *, why: str = "thawed", user: str | None = None) -> MemCube:
        """Unlock a frozen memory. Raises BadTransition."""
        return self._move(id, State.FROZEN, State.ACTIVATED, why, user)

    def archive(self, id: str, *, why: str = "archived", user: str | None = None) -> MemCube:
        """Put a memory out of use, with all that is derived from it. Raises BadTransition."""
        return self._move(id, None, State.ARCHIVED, why, user)

    def unarchive(self, id: str, *, why: str = "brought back", user: str | None = None) -> MemCube:
        """Bring an archived memory back into use. Raises BadTransition, and Conflict for a stale derived one."""
        return self._move(id, State.ARCHIVED, State.ACTIVATED, why, user)

    def _move(self, id: str, was: State | None, to: State, why: str, user: str | None) -> MemCube:
        cube = self._visible(ChangeState(id=id, to=to), id, user)
        return self._changed(self.lifecycle.move(cube.id, to, why, was))

    def snapshot(self, name: str, *, user: str | None = None) -> Snapshot:
        """Write down the version and state of each memory of the user, to go back to. Raises InputError."""
        caller = self._caller(user)
        self.governance.permit(caller, TakeSnapshot(name=name))
        return self.vault.take_snapshot(caller, name)

    def snapshots(self, *, user: str | None = None) -> list[Snapshot]:
        """The user's snapshots, oldest first."""
        caller = self._caller(user)
        self.governance.permit(caller, ListSnapshots())
        return self.vault.snapshots(caller)

    def restore(self, name: str, *, user: str | None = None) -> Restored:
        """Take all memories of the user back to a snapshot, by new versions and moves; see `TimeMachine.restore`.

        A snapshot is taken before, so that this can be undone. Raises NotFound.
        """
        caller = self._caller(user)
        self.governance.permit(caller, Restore(name=name))
        with self.vault.transaction():
            was = {cube.id: cube.version for cube in self.vault.owned(caller)}
            done = self.time_machine.restore(caller, name)
            for cube in self.vault.owned(caller):
                if isinstance(cube.payload, Text) and cube.version != was[cube.id]:
                    self.knowledge.examine(cube, new=False)
        return self._changed(done)

    def delete_snapshot(self, name: str, *, user: str | None = None) -> None:
        """Forget a snapshot; the memories stay. Raises NotFound."""
        caller = self._caller(user)
        self.governance.permit(caller, DeleteSnapshot(name=name))
        self.vault.delete_snapshot(caller, name)
