"""Public calls that share: see memos/kernel/services/sharing.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from memos.cube import MemCube, Namespace
from memos.kernel.identity import Bound
from memos.kernel.wiring import Parts
from memos.ops import GiveRight, TakeRight
from memos.rights import Caller, Grant, Group, Subject, object_of, relation_of

if TYPE_CHECKING:
    from memos.infrastructure.vault.tables.credential_table import Credential


class Granting(Parts):
    """keys, grants, groups."""

    def as_(self, key: str, purpose: str = "", *, user: str | None = None, agent: str = "", session: str = "") -> Bound:
        """The public calls as whoever the key stands for, or within an agent or a session of that one, and for a
        purpose; they take no user. Raises Denied."""
        return _let_in(self.sharing.bound(self, key, purpose).within(user, agent, session))

    def purposed(self, purpose: str, *, user: str | None = None) -> Bound:
        """The public calls of a user for a purpose, which grants may ask for. Raises Denied."""
        return self.within(user=user, purpose=purpose)

    def within(self, *, user: str | None = None, agent: str = "", session: str = "", purpose: str = "") -> Bound:
        """The public calls within one user, agent or session, and for a purpose. Raises Denied."""
        own = Bound(self, self.governance, lambda: Caller(self._caller(user), purpose))
        return _let_in(own.within(user, agent, session))

    def authenticate(self, key: str) -> Caller:
        """Who a key stands for. Raises Denied."""
        return self.sharing.authenticate(key)

    def grant(
        self,
        on: str | Namespace,
        to: str | Subject,
        relation: str,
        *,
        purpose: str | None = None,
        until: datetime | None = None,
        user: str | None = None,
    ) -> Grant:
        """Give somebody a relation (owner, editor, annotator, reader) to a memory, or to all in a namespace.

        on: an id, a Namespace, or "namespace:USER/AGENT". to: see `memos.rights.subject_of`. purpose: holds only for
        callers who state it; None: for all. until: UTC where no zone is given. Raises NotFound, Denied, InputError.
        """
        what = self._shared(GiveRight(on=object_of(on), relation=relation_of(relation)), user)
        return self._changed(self.sharing.grant(what, to, relation, purpose, until, user))

    def revoke(
        self,
        on: str | Namespace,
        to: str | Subject,
        relation: str | None = None,
        *,
        purpose: str | None = None,
        user: str | None = None,
    ) -> int:
        """Take back what was granted; None: of every relation, for every purpose. How many grants that were. Raises
        NotFound, Denied, InputError."""
        what = self._shared(TakeRight(on=object_of(on)), user)
        return self._changed(self.sharing.revoke(what, to, relation, purpose, user))

    def grants(self, on: str | Namespace | None = None, *, user: str | None = None) -> list[Grant]:
        """The grants on what is the user's, and those that reach the user; on one memory or namespace, or on all."""
        return self.sharing.grants(on, user)

    def join(self, group: str, member: str | Subject, *, user: str | None = None) -> Group:
        """Put somebody, or another group, into a group of the user's, which is made if there is none. Raises
        InputError."""
        return self._changed(self.sharing.join(group, member, user))

    def leave(self, group: str, member: str | Subject, *, user: str | None = None) -> Group:
        """Take somebody out of a group of the user's. Raises NotFound."""
        return self._changed(self.sharing.leave(group, member, user))

    def groups(self, *, user: str | None = None) -> dict[Group, list[Subject]]:
        """The user's groups with their members, and those of others that the user belongs to, with none."""
        return self.sharing.groups(user)

    def add_key(
        self,
        to: str | Namespace,
        *,
        purposes: Sequence[str] = (),
        until: datetime | None = None,
    ) -> tuple[str, Credential]:
        """A key that stands for a user, an agent or a namespace; it is told this once. purposes: those that its holder
        may state. Only for whoever holds the vault's folder."""
        return self.sharing.add_key(to, purposes, until)

    def keys(self) -> list[Credential]:
        """The keys that there are, without what would let anybody in."""
        return self.sharing.keys()

    def revoke_key(self, id: str) -> None:
        """From the next call on, a key opens nothing. Raises NotFound."""
        self.sharing.revoke_key(id)

    def _shared(self, op: GiveRight | TakeRight, user: str | None) -> MemCube | Namespace:
        """What is to be shared, if the caller may. Raises NotFound, Denied."""
        if isinstance(op.on, str):
            return self._visible(op, op.on, user)
        self.governance.permit(self._caller(user), op, over=op.on)
        return op.on


def _let_in(calls: Bound) -> Bound:
    """The calls of one who acts at all. Raises Denied at once, and not with the first call."""
    calls.caller  # noqa: B018
    return calls
