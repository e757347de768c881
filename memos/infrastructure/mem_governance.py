"""Caller + action + cube -> yes or no, with a line in the audit log for each decision.

Knows namespaces, rights and where a cube came from. Must not know models, ranking or what a cube says.
"""

from __future__ import annotations

from collections.abc import Iterable

from memos.cube import MemCube, Namespace, Rights
from memos.errors import Denied, NotFound
from memos.infrastructure.mem_vault import MemVault, absent
from memos.ops import Delete, Demote, Get, History, Operation, Promote, Update, action


class MemGovernance:
    """Decides by namespace and rights alone; a derived cube is as secret as the most secret of its sources."""

    def __init__(self, vault: MemVault) -> None:
        self._vault = vault

    def permit(self, caller: Namespace, op: Operation, cube: MemCube | None = None) -> None:
        """Return if `caller` may do `op` to `cube`; without a cube, any caller may act in its own namespace.

        Raises Denied; or, for a cube that the caller may not even see, what an absent id raises, so that asking to
        write does not reveal more than asking to read. To be asked before a transaction, which could undo the line.
        """
        right, name = action(op), type(op).__name__.lower()
        allowed = cube is None or self.may(caller, right, cube)
        hidden = not allowed and cube is not None and not self.may(caller, "read", cube)
        why = (
            name if allowed else f"{name}: {'may not see it' if hidden else 'not the owner, or outside its namespace'}"
        )
        self._vault.audit(str(caller), right, cube.id if cube else name, allowed, why)
        if cube is None or allowed:
            return
        if hidden:
            raise absent(_as_asked(op, cube.id))
        raise Denied(
            f"{caller} may not {right} cube {cube.id}: only its owner may, from within its namespace; "
            "ask the owner, or add a memory of your own"
        )

    def may(self, caller: Namespace, right: str, cube: MemCube) -> bool:
        """The rule by itself, not audited; `right` is one of `ops.action`."""
        if right != "read":
            return caller.user_id == cube.rights.owner and caller.covers(cube.namespace)
        return self._may_read(caller, cube, {})

    def may_read(self, caller: Namespace, namespace: Namespace, rights: Rights) -> bool:
        """The rule for all cubes of a namespace with these rights that are derived from no other; not audited."""
        return caller.covers(namespace) or caller.user_id in rights.readers

    def _may_read(self, caller: Namespace, cube: MemCube, known: dict[str, bool]) -> bool:
        """known: what was found of other cubes, so that a long line of descent is walked once."""
        if cube.id not in known:
            granted = self.may_read(caller, cube.namespace, cube.rights)
            known[cube.id] = granted and all(self._may_read_source(caller, s.id, known) for s in cube.sources)
        return known[cube.id]

    def _may_read_source(self, caller: Namespace, id: str, known: dict[str, bool]) -> bool:
        if id in known:
            return known[id]
        try:
            return self._may_read(caller, self._vault.get(id), known)
        except NotFound:  # deleted since the cube was listed, and the cube with it
            return False

    def visible(self, caller: Namespace, cubes: Iterable[MemCube], seen: Iterable[MemCube] = ()) -> list[MemCube]:
        """Those that `caller` may read, in the order given; not audited. seen: cubes found readable just before."""
        known = {cube.id: True for cube in seen}
        return [cube for cube in cubes if self._may_read(caller, cube, known)]

    def readable(self, caller: Namespace, cubes: Iterable[MemCube]) -> list[MemCube]:
        """Those that `caller` may read, in the order given; to be asked before anything is ranked."""
        given = list(cubes)
        kept = self.visible(caller, given)
        self.narrowed(caller, len(kept), len(given))
        return kept

    def narrowed(self, caller: Namespace, kept: int, given: int) -> None:
        """Write down how many of how many memories a search may look at."""
        self._vault.audit(str(caller), "read", f"{kept} of {given} cubes", True, "search narrowed")


def _as_asked(op: Operation, id: str) -> str:
    """The cube's id in the caller's own words: that may be a prefix, and the rest of it must not leak."""
    match op:
        case Get(id=asked) | Update(id=asked) | Delete(id=asked) | Demote(id=asked) | History(id=asked):
            return asked
        case Promote(ids=ids):
            return next((asked for asked in ids if id.startswith(asked)), id)
        case _:
            return id
