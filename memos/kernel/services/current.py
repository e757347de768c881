"""Public calls that keep what is known current: see memos/operation/life/knowledge.py."""

from __future__ import annotations

from collections.abc import Sequence

from memos.cube import MemCube
from memos.errors import InputError
from memos.kernel.wiring import Parts, _tags
from memos.operation.life.agreement import Disagreement, MemoryAudit, text_of
from memos.ops import Fuse, Rate, Reinstate, Split, Tag


class Current(Parts):
    """tag, feedback, fuse, split, consolidate, reinstate, conflicts, audit_memory."""

    def tag(self, id: str, tags: Sequence[str], *, user: str | None = None) -> MemCube:
        """Give a memory these tags, in place of those that it has.

        "always": every request sees it, as far as there is room. "apart:NAME": no request sees two memories that are
        apart by the same name; the one that is found nearer is seen. Others mean what you like. Raises InputError,
        BadTransition.
        """
        cube = self._visible(Tag(id=id, tags=_tags(tags)), id, user)
        text_of(cube)
        return self._changed(self.lifecycle.tag(cube.id, _tags(tags)))

    def feedback(self, id: str, useful: float, *, user: str | None = None) -> MemCube:
        """Say how much a memory has helped, from -1 to 1: what helps is found sooner (`retrieval.useful`), and stays
        longer. Raises InputError, Denied."""
        if not -1 <= useful <= 1:
            raise InputError(f"useful {useful:g} is not from -1 (it misled) to 1 (it was just what was needed)")
        cube = self._visible(Rate(id=id, useful=useful), id, user)
        return self._changed(self.lifecycle.rated(cube.id, useful, self.config.retrieval.learning))

    def fuse(self, ids: Sequence[str], text: str | None = None, *, user: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what they say. `split` undoes it; what
        becomes of one of them reaches it. Raises InputError, BadTransition."""
        op = Fuse(ids=tuple(ids), text=text)
        return self._changed(self.knowledge.fuse([self._visible(op, id, user) for id in ids], text))

    def split(self, id: str, parts: Sequence[str] = (), *, user: str | None = None) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or its sentences; one that was made of others, back to them.
        Raises InputError, BadTransition."""
        cube = self._visible(Split(id=id, parts=tuple(parts)), id, user)
        return self._changed(self.knowledge.split(cube, parts))

    def consolidate(self, *, user: str | None = None) -> list[MemCube]:
        """Make one of each group of memories that say the same; those made."""
        caller = self._caller(user)
        self.governance.permit(caller, Fuse(ids=()))
        mine = [c for c in self._texts(caller) if c.rights.owner == caller.user_id]
        return self._changed(self.knowledge.consolidate(mine))

    def reinstate(self, id: str, *, user: str | None = None) -> MemCube:
        """Bring back a memory that another has replaced; the other stays. Raises BadTransition."""
        return self._changed(self.lifecycle.reinstate(self._visible(Reinstate(id=id), id, user).id))

    def conflicts(self, *, user: str | None = None) -> list[Disagreement]:
        """Pairs of memories in force of which only one can be true."""
        return self.knowledge.conflicts(self._texts(self._caller(user)))

    def audit_memory(self, *, user: str | None = None) -> MemoryAudit:
        """Which memories in force are told twice, overtaken, or not supported by what they were made of."""
        return self.knowledge.audit(self._texts(self._caller(user)))
