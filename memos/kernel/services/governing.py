"""The calls of governance: trust, quarantine, legal holds, the right to be forgotten, grants, groups and keys.

Must not know what a memory says, nor how one is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos import ops
from memos.cube import MemCube, Namespace, Trust, in_zone
from memos.errors import Denied, InputError, NotFound
from memos.kernel.access import Service
from memos.operation.life.forgetting import Proof, forget_user
from memos.operation.life.knowledge import text_of
from memos.rights import Caller, Grant, Group, Subject, holds_for, name_of, object_of, relation_of, subject_of, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from memos.infrastructure.vault.tables.grant_table import Credential
    from memos.infrastructure.vault.tables.set_aside import LegalHold, Suspect
    from memos.kernel.services.finding import Finding
    from memos.kernel.wiring import Parts


class Governing(Service):
    """trust, quarantined, release, hold, forget_user; grant, revoke, grants, join, leave, groups; and the keys, for
    whoever holds the vault's folder."""

    def __init__(self, parts: Parts, finding: Finding) -> None:
        super().__init__(parts)
        self._finding = finding

    def trust(self, caller: Caller, id: str, trust: Trust | str) -> MemCube:
        """Say how far a memory is believed; what is derived from it is stale. Raises InputError, BadTransition."""
        if trust not in list(Trust):
            raise InputError(f"a memory cannot be {trust!r}; give one of {', '.join(Trust)}")
        op = ops.SetTrust(id=id, trust=Trust(trust))
        cube = self._access.cube(caller, op, id)
        text_of(cube)
        return self._freshness.changed(self._lifecycle.edit(cube.id, trust=op.trust))

    def quarantined(self, caller: Caller) -> list[tuple[MemCube, Suspect]]:
        """The user's memories that answer nothing until they are released, each with the reason; the latest last."""
        self._governance.permit(caller, ops.Quarantined())
        suspects = {suspect.id: suspect for suspect in self._vault.quarantine.all()}
        seen = self._governance.readable(caller, self._vault.at(suspects))
        return [(cube, suspects[cube.id]) for cube in seen]

    def release(self, caller: Caller, id: str) -> MemCube:
        """Let a memory out of quarantine. Raises BadTransition."""
        return self._freshness.changed(self._knowledge.release(self._access.cube(caller, ops.Release(id=id), id).id))

    def holds(self, caller: Caller) -> list[tuple[MemCube, LegalHold]]:
        """The user's memories that nobody may edit, delete or forget, each with who holds it and why; oldest first."""
        self._governance.permit(caller, ops.Holds())
        seen = {cube.id: cube for cube in self._access.cubes(caller)}
        return [(seen[hold.id], hold) for hold in self._vault.holds.of(seen)]

    def hold(self, caller: Caller, id: str, why: str) -> MemCube:
        """Lay a legal hold on a memory: until the same user ends it, nobody and no rule edits, deletes or forgets it.
        Raises Held, BadTransition, InputError."""
        cube = self._access.cube(caller, ops.Hold(id=id, why=why), id)
        return self._freshness.changed(self._lifecycle.hold(cube.id, caller.user_id, why))

    def end_hold(self, caller: Caller, id: str) -> MemCube:
        """Raises BadTransition."""
        return self._freshness.changed(self._lifecycle.end_hold(self._access.cube(caller, ops.EndHold(id=id), id).id))

    def forget_user(self, caller: Caller) -> Proof:
        """Remove the user: every memory in every form and state, and whatever was made of these, also by others.

        What is left of it is told in the proof; nothing is, unless another process is in the way. Raises Held.
        """
        self._governance.permit(caller, ops.ForgetUser(), over=Namespace(user_id=caller.user_id))
        self._freshness.release()
        proof = forget_user(self._vault, self._lifecycle, caller.user_id)
        self._finding.forget_tiers()
        return self._freshness.changed(proof)

    # keys: not calls of a caller, but of whoever holds the vault's folder

    def add_key(
        self, to: str | Namespace, *, purposes: Sequence[str] = (), until: datetime | None = None
    ) -> tuple[str, Credential]:
        """A key that stands for a user, an agent or a namespace; it is told this once. purposes: those that its holder
        may state. Raises InputError."""
        subject = subject_of(to, "")
        if isinstance(subject, Group):
            raise InputError(f"{subject} is a group, and a key stands for one user, agent or namespace; name one")
        return self._vault.credentials.add(subject, [word(one, "purpose") for one in purposes], self._coming(until))

    def keys(self) -> list[Credential]:
        """The keys that there are, without what would let anybody in."""
        return self._vault.credentials.all()

    def revoke_key(self, id: str) -> None:
        """From the next call on, a key opens nothing. Raises NotFound."""
        self._vault.credentials.revoke(id)

    # grants

    def grant(
        self,
        caller: Caller,
        on: str | Namespace,
        to: str | Subject,
        relation: str,
        *,
        purpose: str | None = None,
        until: datetime | None = None,
    ) -> Grant:
        """Give somebody a relation (owner, editor, annotator, reader) to a memory, or to all in a namespace.

        on: an id, a Namespace, or "namespace:USER/AGENT". to: see `memos.rights.subject_of`. purpose: holds only for
        callers who state it; None: for all. until: UTC where no zone is given. Raises NotFound, Denied, InputError.
        """
        shared = self._shared(caller, ops.GiveRight(on=object_of(on), relation=relation_of(relation)))
        made = Grant(
            on=shared,
            to=subject_of(to, caller.user_id),
            relation=relation_of(relation),
            purpose="" if purpose is None else word(purpose, "purpose"),
            until=self._coming(until),
        )
        self._vault.grants.put(made, str(caller))
        return self._freshness.changed(made)

    def revoke(
        self,
        caller: Caller,
        on: str | Namespace,
        to: str | Subject,
        relation: str | None = None,
        *,
        purpose: str | None = None,
    ) -> int:
        """Take back what was granted; None: of every relation, for every purpose. How many grants that were. Raises
        NotFound, Denied, InputError."""
        shared = self._shared(caller, ops.TakeRight(on=object_of(on)))
        subject = subject_of(to, caller.user_id)
        granted = None if relation is None else relation_of(relation)
        return self._freshness.changed(self._vault.grants.remove(shared, subject, granted, purpose))

    def _shared(self, caller: Caller, op: ops.GiveRight | ops.TakeRight) -> str | Namespace:
        """The id or the namespace that is to be shared, if the caller may. Raises NotFound, Denied."""
        if isinstance(op.on, str):
            return self._access.cube(caller, op, op.on).id
        self._governance.permit(caller, op, over=op.on)
        return op.on

    def grants(self, caller: Caller, on: str | Namespace | None = None) -> list[Grant]:
        """The grants on what is the caller's, and those that reach the caller; on one memory or namespace, or on
        all."""
        self._governance.permit(caller, ops.ListRights())
        what = None if on is None else object_of(on)
        reaching = {*self._vault.grants.groups_with(caller.namespace)}
        found = [grant for grant in self._vault.grants.all() if what is None or _is_on(grant, what)]
        cubes = {cube.id: cube for cube in self._vault.at({g.on for g in found if isinstance(g.on, str)})}
        seen = self._governance.visible_ids(caller, cubes.values())
        return [
            grant
            for grant in found
            if self._may_manage(caller, grant.on, cubes)
            or (
                _reaches(grant.to, caller.namespace, reaching) and (isinstance(grant.on, Namespace) or grant.on in seen)
            )
        ]

    def _may_manage(self, caller: Caller, on: str | Namespace, cubes: dict[str, MemCube]) -> bool:
        """True if the caller may say who has which right to it."""
        if isinstance(on, Namespace):
            return self._governance.may_over(caller, "manage", on)
        return on in cubes and self._governance.may(caller, "manage", cubes[on])

    # groups

    def join(self, caller: Caller, group: str, member: str | Subject) -> Group:
        """Put somebody, or another group, into a group of the caller's, which is made if there is none. Raises
        InputError."""
        own, subject = self._own_group(caller, group, member)
        self._vault.grants.join(own, subject)
        return self._freshness.changed(own)

    def leave(self, caller: Caller, group: str, member: str | Subject) -> Group:
        """Take somebody out of a group of the caller's. Raises NotFound."""
        own, subject = self._own_group(caller, group, member)
        if not self._vault.grants.leave(own, subject):
            raise NotFound(f"{name_of(subject)} is no member of {own}; `memos group list` tells who is")
        return self._freshness.changed(own)

    def _own_group(self, caller: Caller, group: str, member: str | Subject) -> tuple[Group, Subject]:
        """Raises InputError, and Denied for an agent or a session: groups are the user's."""
        own = Group(owner=caller.user_id, name=word(group, "group"))
        user = Namespace(user_id=caller.user_id)
        self._governance.permit(caller, ops.Join(group=own.name), over=user)
        if caller.namespace != user:  # whom all is granted to: others have granted to the group
            self._vault.audit_log.append(
                str(caller), "manage", f"namespace {user}", False, "join: groups are the user's"
            )
            raise Denied(f"{caller} keeps no groups, whatever is granted to it; ask {user} to change {own}")
        return own, subject_of(member, caller.user_id)

    def groups(self, caller: Caller) -> dict[Group, list[Subject]]:
        """The caller's groups with their members, and those of others that the caller belongs to, with none."""
        self._governance.permit(caller, ops.ListGroups())
        whole = caller.namespace == Namespace(user_id=caller.user_id)
        own = self._vault.grants.members(caller.user_id) if whole else {}
        return {group: [] for group in self._vault.grants.groups_with(caller.namespace) if group not in own} | own

    def _coming(self, until: datetime | None) -> datetime | None:
        """Raises InputError for a time that has passed."""
        until = in_zone(until)
        if until is not None and until <= self._vault.now():
            raise InputError(f"until {until} has passed; give a later time, or leave it out for no end")
        return until


def _is_on(grant: Grant, what: str | Namespace) -> bool:
    if isinstance(what, Namespace) or isinstance(grant.on, Namespace):
        return grant.on == what
    return bool(what) and grant.on.startswith(what)


def _reaches(to: Subject, caller: Namespace, groups: Iterable[Group]) -> bool:
    return to in groups if isinstance(to, Group) else holds_for(to, caller)
