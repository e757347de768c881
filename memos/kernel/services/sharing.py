"""Who acts, and what is granted to whom: callers, keys, grants, groups.

Works on what governance has permitted. Must not know what a memory says, nor how one is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from memos.config import Config
from memos.cube import MemCube, Namespace, in_zone
from memos.errors import Denied, InputError, NotFound, Unauthenticated
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.tables.credential_table import Credential
from memos.kernel.identity import Bound, Exchange
from memos.ops import Join, ListGroups, ListRights
from memos.rights import Caller, Grant, Group, Subject, holds_for, name_of, object_of, relation_of, subject_of, word


class Sharing:
    """Callers, and what they give each other."""

    def __init__(self, vault: MemVault, governance: MemGovernance, config: Config) -> None:
        self._vault, self._governance, self._config = vault, governance, config

    # -- who acts ------------------------------------------------------------------------------------------

    def caller(self, user: str | None) -> Namespace:
        """Whoever is bound to this call; else the user that is named, trusted as one who holds the vault's folder.

        Raises Denied for another user than the one who is bound, and where a key is required.
        """
        if bound := self._governance.caller:
            if user not in (None, bound.namespace.user_id):
                raise Denied(f"{bound.namespace} cannot act for {user!r:.80}; leave user out")
            return bound.namespace
        if self._config.governance.require_credentials:
            raise Denied(
                "this kernel takes no call without a key (governance.require_credentials); make one with "
                "`memos key add`, and call through as_(key)"
            )
        return Namespace(user_id=user or self._config.user_id)

    def bound(self, kernel: Any, key: str, purpose: str) -> Bound:
        """The public calls of a kernel as whoever a key stands for. Raises Denied."""
        self.authenticate(key, purpose)  # the first time is written down; later ones with what they do
        files = Exchange(self._config.governance.exchange_folder)
        return Bound(kernel, self._governance, partial(self.authenticate, key, purpose, audited=False), files)

    def authenticate(self, key: str, purpose: str = "", audited: bool = True) -> Caller:
        """Who a key stands for. A failure is written down, without the key. Raises Unauthenticated, Denied."""
        found = self._vault.match_key(key)
        if found is None:
            self._vault.audit("unknown", "authenticate", "a key", False, "no key that is in force")
            raise Unauthenticated(
                "the key is unknown, revoked or has ended; ask who keeps this vault for one (`memos key add`)"
            )
        if purpose and purpose not in found.purposes:
            self._vault.audit(str(found.namespace), "authenticate", f"key {found.id}", False, "not for this purpose")
            raise Denied(
                f"key {found.id} is not for the purpose {purpose!r:.80}; "
                + (f"it is for {', '.join(found.purposes)}" if found.purposes else "it is for none; leave it out")
            )
        if audited:
            self._vault.audit(str(found.namespace), "authenticate", f"key {found.id}", True, "authenticate")
        return Caller(found.namespace, purpose)

    def add_key(self, to: str | Namespace, purposes: Sequence[str], until: datetime | None) -> tuple[str, Credential]:
        self.require_keeper("keeps no keys")
        subject = subject_of(to, "")
        if isinstance(subject, Group):
            raise InputError(f"{subject} is a group, and a key stands for one user, agent or namespace; name one")
        return self._vault.add_key(subject, [word(one, "purpose") for one in purposes], self._coming(until))

    def keys(self) -> list[Credential]:
        self.require_keeper("keeps no keys")
        return self._vault.keys()

    def revoke_key(self, id: str) -> None:
        self.require_keeper("keeps no keys")
        self._vault.revoke_key(id)

    def require_keeper(self, but: str) -> None:
        """Some things are for whoever holds the folder; `but` says why not. Raises Denied."""
        if bound := self._governance.caller:
            raise Denied(f"{bound.namespace} {but}; ask who keeps this vault")

    # -- grants --------------------------------------------------------------------------------------------

    def grant(
        self,
        on: MemCube | Namespace,
        to: str | Subject,
        relation: str,
        purpose: str | None,
        until: datetime | None,
        user: str | None,
    ) -> Grant:
        """on: what the caller was permitted to share. Raises InputError."""
        caller = self.caller(user)
        made = Grant(
            on=on if isinstance(on, Namespace) else on.id,
            to=subject_of(to, caller.user_id),
            relation=relation_of(relation),
            purpose="" if purpose is None else word(purpose, "purpose"),
            until=self._coming(until),
        )
        self._vault.grant(made, str(caller))
        return made

    def revoke(
        self,
        on: MemCube | Namespace,
        to: str | Subject,
        relation: str | None,
        purpose: str | None,
        user: str | None,
    ) -> int:
        """on: what the caller was permitted to share. Raises InputError."""
        subject = subject_of(to, self.caller(user).user_id)
        of = None if relation is None else relation_of(relation)
        return self._vault.revoke(on if isinstance(on, Namespace) else on.id, subject, of, purpose)

    def grants(self, on: str | Namespace | None, user: str | None) -> list[Grant]:
        caller = self.caller(user)
        self._governance.permit(caller, ListRights())
        what = None if on is None else object_of(on)
        reaching = {*self._vault.groups_with(caller)}
        found = [grant for grant in self._vault.grants() if what is None or _is_on(grant, what)]
        cubes = {cube.id: cube for cube in self._vault.at({g.on for g in found if isinstance(g.on, str)})}
        seen = self._governance.visible_ids(caller, cubes.values())
        return [
            grant
            for grant in found
            if self._keeps(caller, grant.on, cubes)
            or (_reaches(grant.to, caller, reaching) and (isinstance(grant.on, Namespace) or grant.on in seen))
        ]

    def _keeps(self, caller: Namespace, on: str | Namespace, cubes: dict[str, MemCube]) -> bool:
        """True if the caller may say who has which right to it."""
        if isinstance(on, Namespace):
            return self._governance.may_over(caller, "manage", on)
        return on in cubes and self._governance.may(caller, "manage", cubes[on])

    # -- groups --------------------------------------------------------------------------------------------

    def join(self, group: str, member: str | Subject, user: str | None) -> Group:
        own, subject = self._of(group, member, user)
        self._vault.join(own, subject)
        return own

    def leave(self, group: str, member: str | Subject, user: str | None) -> Group:
        own, subject = self._of(group, member, user)
        if not self._vault.leave(own, subject):
            raise NotFound(f"{name_of(subject)} is no member of {own}; `memos group list` tells who is")
        return own

    def _of(self, group: str, member: str | Subject, user: str | None) -> tuple[Group, Subject]:
        """A group of the caller's. Raises InputError, and Denied for an agent or a session: groups are the user's."""
        caller = self.caller(user)
        own = Group(owner=caller.user_id, name=word(group, "group"))
        self._governance.permit(caller, Join(group=own.name), over=Namespace(user_id=caller.user_id))
        if caller != Namespace(user_id=caller.user_id):  # whom all is granted to: others have granted to the group
            self._vault.audit(
                str(caller), "manage", f"namespace {caller.user_id}", False, "join: groups are the user's"
            )
            raise Denied(f"{caller} keeps no groups, whatever is granted to it; ask {caller.user_id} to change {own}")
        return own, subject_of(member, caller.user_id)

    def groups(self, user: str | None) -> dict[Group, list[Subject]]:
        caller = self.caller(user)
        self._governance.permit(caller, ListGroups())
        own = self._vault.members(caller.user_id) if caller == Namespace(user_id=caller.user_id) else {}
        return {group: [] for group in self._vault.groups_with(caller) if group not in own} | own

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
