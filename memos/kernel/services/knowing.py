"""The calls that keep what is known current: tags, feedback, fusing, splitting, conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.errors import InputError
from memos.kernel.access import Service
from memos.kernel.services.keeping import checked_tags
from memos.operation.life.consolidation import Disagreement, MemoryAudit
from memos.operation.life.knowledge import text_of
from memos.ops import Fuse, Rate, Reinstate, Split, Tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memos.cube import MemCube
    from memos.rights import Caller


class Knowing(Service):
    """tag, feedback, fuse, split, consolidate, reinstate, conflicts, audit_memory."""

    def tag(self, caller: Caller, id: str, tags: Sequence[str]) -> MemCube:
        """Give a memory these tags, in place of those that it has.

        "always": every request sees it, as far as there is room. "apart:NAME": no request sees two memories that are
        apart by the same name; the one that is found nearer is seen. Others mean what you like. Raises InputError,
        BadTransition.
        """
        given = checked_tags(tags)
        cube = self._access.cube(caller, Tag(id=id, tags=given), id)
        text_of(cube)
        return self._freshness.changed(self._lifecycle.edit(cube.id, tags=given))

    def feedback(self, caller: Caller, id: str, useful: float) -> MemCube:
        """Say how much a memory has helped, from -1 to 1: what helps is found sooner (`retrieval.useful`), and stays
        longer. Raises InputError, Denied."""
        if not -1 <= useful <= 1:
            raise InputError(f"useful {useful:g} is not from -1 (it misled) to 1 (it was just what was needed)")
        cube = self._access.cube(caller, Rate(id=id, useful=useful), id)
        self._vault.usage.rate(cube.id, useful, self._config.retrieval.learning)
        return self._freshness.changed(self._vault.get(cube.id))

    def fuse(self, caller: Caller, ids: Sequence[str], text: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what they say. `split` undoes it; what
        becomes of one of them reaches it. Raises InputError, BadTransition."""
        op = Fuse(ids=tuple(ids), text=text)
        return self._freshness.changed(
            self._consolidation.fuse([self._access.cube(caller, op, id) for id in ids], text)
        )

    def split(self, caller: Caller, id: str, parts: Sequence[str] = ()) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or its sentences; one that was made of others, back to them.
        Raises InputError, BadTransition."""
        cube = self._access.cube(caller, Split(id=id, parts=tuple(parts)), id)
        return self._freshness.changed(self._consolidation.split(cube, parts))

    def consolidate(self, caller: Caller) -> list[MemCube]:
        """Make one of each group of memories that say the same; those made."""
        self._governance.permit(caller, Fuse(ids=()))
        own = [c for c in self._access.texts(caller) if c.rights.owner == caller.user_id]
        return self._freshness.changed(self._consolidation.consolidate(own))

    def reinstate(self, caller: Caller, id: str) -> MemCube:
        """Bring back a memory that another has replaced; the other stays. Raises BadTransition."""
        return self._freshness.changed(self._lifecycle.reinstate(self._access.cube(caller, Reinstate(id=id), id).id))

    def conflicts(self, caller: Caller) -> list[Disagreement]:
        """Pairs of memories in force of which only one can be true."""
        return self._consolidation.conflicts(self._access.texts(caller))

    def audit_memory(self, caller: Caller) -> MemoryAudit:
        """Which memories in force are told twice, overtaken, or not supported by what they were made of."""
        return self._consolidation.audit(self._access.texts(caller))
