"""Stores what is granted to whom, who belongs to which group, and keys that stand for a caller.

Must not know what a relation allows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from memos.cube import Namespace
from memos.errors import NotFound
from memos.infrastructure.vault.store.transactions import LATEST, Row, Store
from memos.infrastructure.vault.tables.cube_table import kept
from memos.rights import Grant, Group, Relation, Subject, holds_for

_COLUMNS = """cube, over_user, over_agent, over_session, relation, to_group, to_user, to_agent, to_session, purpose,
              until"""
_SAME = """over_user = ? AND over_agent = ? AND over_session = ?
           AND to_group = ? AND to_user = ? AND to_agent = ? AND to_session = ?"""
_MEMBER = "is_group = ? AND user_id = ? AND agent_id = ? AND session_id = ?"


class RightsState(NamedTuple):
    """Another whenever a right may be: n counts the changes of grants, groups and cubes, moved those of cubes alone,
    ended is when a grant has ended last."""

    n: int
    ended: str
    moved: int


class GrantTable:
    def __init__(self, db: Store, require_name: Callable[[str, str], None]) -> None:
        """require_name: raises InputError for a name that must not be stored, and what it is a name of."""
        self._db, self._require_name = db, require_name

    # grants

    def put(self, grant: Grant, by: str) -> None:
        """Keep a relation, in place of the same for the same purpose. Raises InputError for a name that is not kept."""
        self._require_name(grant.purpose, "a purpose")
        self._require_groups(grant.to)
        with self._db.transaction():
            self.write(grant, by)

    def _require_groups(self, *subjects: Subject) -> None:
        for subject in subjects:
            if isinstance(subject, Group):
                self._require_name(subject.name, "a group")

    def write(self, grant: Grant, by: str) -> None:
        """Within a transaction: the same, its names unchecked."""
        self.remove(grant.on, grant.to, grant.relation, grant.purpose)
        self._db.write("DELETE FROM grants WHERE until <= ?", kept(self._db.now()))
        cube, over = _object(grant.on)
        until = kept(grant.until)
        self._db.write(
            f"INSERT INTO grants ({_COLUMNS}, by, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(cube or None, *over, grant.relation, *_subject(grant.to), grant.purpose, until, by, self._db.stamp()),
        )
        self.changed()

    def remove(
        self, on: str | Namespace, to: Subject, relation: Relation | None = None, purpose: str | None = None
    ) -> int:
        """Take relations back; None: of every relation, for every purpose. How many there were."""
        cube, over = _object(on)
        sql = f"""DELETE FROM grants WHERE {_SAME} AND relation = ifnull(?, relation) AND purpose = ifnull(?, purpose)
                  AND cube {"= ?" if cube else "IS NULL"}"""
        with self._db.transaction():
            if gone := self._db.write(sql, *over, *_subject(to), relation, purpose, *([cube] if cube else [])):
                self.changed()
        return gone

    def of(self, caller: Namespace, purpose: str) -> list[Grant]:
        """Those in force that reach a caller, itself or through groups, for a purpose."""
        sql = f"""SELECT {_COLUMNS} FROM grants WHERE (until IS NULL OR until > ?) AND purpose IN ('', ?)
                  AND to_group = ? AND to_user = ?"""
        now = kept(self._db.now())
        own = [_grant(row) for row in self._db.rows(sql, now, purpose, 0, caller.user_id)]
        grants = [g for g in own if isinstance(g.to, Namespace) and holds_for(g.to, caller)]
        for group in self.groups_with(caller):
            grants += map(_grant, self._db.rows(sql + " AND to_agent = ?", now, purpose, 1, group.owner, group.name))
        return grants

    def all(self) -> list[Grant]:
        """Those in force, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM grants WHERE until IS NULL OR until > ? ORDER BY n"
        return [_grant(row) for row in self._db.rows(sql, kept(self._db.now()))]

    def state(self) -> RightsState:
        """Another whenever somebody's rights may be, in this process or another."""
        sql = f"SELECT n, (SELECT max(until) FROM grants WHERE until <= {LATEST}), moved FROM rights_clock"
        now = kept(self._db.now())
        [(n, ended, moved)] = self._db.rows(sql, now, now)
        return RightsState(n, ended or "", moved)

    def changed(self) -> None:
        """Within a transaction: what is granted is not what it was."""
        self._db.write("UPDATE rights_clock SET n = n + 1")

    def moved(self) -> None:
        """Within a transaction: a cube is not whose it was, or not made of what it was, or is gone."""
        self._db.write("UPDATE rights_clock SET n = n + 1, moved = moved + 1")

    def forget(self, user_id: str) -> int:
        """Within a transaction: nothing names a user any more, nor its groups; how many rights and memberships went."""
        gone = self._db.write("DELETE FROM grants WHERE to_user = ? OR over_user = ?", user_id, user_id)
        gone += self._db.write("DELETE FROM group_members WHERE owner = ? OR user_id = ?", user_id, user_id)
        of_agents = "substr(by, 1, length(?) + 1) = ? || '/'"
        self._db.write(f"UPDATE grants SET by = '' WHERE by = ? OR {of_agents}", user_id, user_id, user_id)
        self.changed()
        return gone

    # groups

    def join(self, group: Group, member: Subject) -> None:
        """Raises InputError for a name that is not kept."""
        self._require_groups(group, member)
        with self._db.transaction():
            self.leave(group, member)
            values = group.owner, group.name, *_subject(member)
            self._db.write("INSERT INTO group_members VALUES (?, ?, ?, ?, ?, ?)", *values)
            self.changed()

    def leave(self, group: Group, member: Subject) -> bool:
        """Whether it was a member."""
        sql = f"DELETE FROM group_members WHERE owner = ? AND name = ? AND {_MEMBER}"
        with self._db.transaction():
            if gone := self._db.write(sql, group.owner, group.name, *_subject(member)):
                self.changed()
        return bool(gone)

    def members(self, owner: str) -> dict[Group, list[Subject]]:
        """The members of each group of an owner, groups by name."""
        sql = """SELECT name, is_group, user_id, agent_id, session_id FROM group_members WHERE owner = ?
                 ORDER BY name, is_group, user_id, agent_id, session_id"""
        found: dict[Group, list[Subject]] = {}
        for name, *member in self._db.rows(sql, owner):
            found.setdefault(Group(owner=owner, name=name), []).append(_named(*member))
        return found

    def groups_with(self, caller: Namespace) -> list[Group]:
        """The groups that a caller belongs to, itself or through others."""
        sql = """SELECT owner, name, is_group, user_id, agent_id, session_id FROM group_members
                 WHERE is_group = 0 AND user_id = ?"""
        known: dict[Group, None] = {}
        fresh = [
            Group(owner=owner, name=name)
            for owner, name, *member in self._db.rows(sql, caller.user_id)
            if isinstance(subject := _named(*member), Namespace) and holds_for(subject, caller)
        ]
        while fresh:  # a group is looked into once, so that cycles end
            known |= dict.fromkeys(fresh)
            fresh = [above for group in fresh for above in self._above(group) if above not in known]
        return list(known)

    def _above(self, group: Group) -> Iterable[Group]:
        rows = self._db.rows(f"SELECT owner, name FROM group_members WHERE {_MEMBER}", *_subject(group))
        return [Group(owner=owner, name=name) for owner, name in rows]


def _object(on: str | Namespace) -> tuple[str, tuple[str, str, str]]:
    """The cube or "", and the namespace or blanks."""
    if isinstance(on, Namespace):
        return "", (on.user_id, on.agent_id, on.session_id)
    return on, ("", "", "")


def _subject(to: Subject) -> tuple[int, str, str, str]:
    """Of a group: its owner and its name, in the places of user and agent."""
    if isinstance(to, Group):
        return 1, to.owner, to.name, ""
    return 0, to.user_id, to.agent_id, to.session_id


def _named(is_group: int, user: str, agent: str, session: str) -> Subject:
    if is_group:
        return Group(owner=user, name=agent)
    return Namespace(user_id=user, agent_id=agent, session_id=session)


def _grant(row: Row) -> Grant:
    cube, user, agent, session, relation, is_group, *to, purpose, until = row
    on = cube or Namespace(user_id=user, agent_id=agent, session_id=session)
    return Grant(on=on, to=_named(is_group, *to), relation=relation, purpose=purpose, until=until)


_PREFIX = "memos"
_SECRET, _SALT, _ID = 32, 16, 8  # bytes


class Credential(NamedTuple):
    """purposes: those that its holder may state."""

    id: str
    namespace: Namespace
    purposes: tuple[str, ...]
    made: datetime
    until: datetime | None
    revoked: datetime | None


class CredentialTable:
    def __init__(self, db: Store, require_name: Callable[[str, str], None]) -> None:
        """require_name: raises InputError for a name that must not be stored, and what it is a name of."""
        self._db, self._require_name = db, require_name

    def add(self, namespace: Namespace, purposes: Sequence[str], until: datetime | None) -> tuple[str, Credential]:
        """A new key, which nothing tells again, and what it stands for. Raises InputError for a purpose that is not
        kept."""
        for purpose in purposes:
            self._require_name(purpose, "a purpose")
        id, secret, salt = secrets.token_hex(_ID), secrets.token_urlsafe(_SECRET), secrets.token_hex(_SALT)
        with self._db.transaction():
            self._db.write(
                "INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(id, salt, _digest(salt, secret), namespace.user_id, namespace.agent_id, namespace.session_id),
                *(json.dumps(purposes), self._db.stamp(), until and until.isoformat(), None),
            )
            return f"{_PREFIX}_{id}_{secret}", self._find(id)[0]

    def match(self, key: str) -> Credential | None:
        """What a key stands for, if it is one that is in force. Takes as long for an unknown id as for a known one."""
        _, id, secret = (*key.split("_", 2), "", "")[:3]
        rows = self._db.rows("SELECT salt, digest FROM credentials WHERE id = ?", id if id.isascii() else "")
        salt, digest = rows[0] if rows else ("0" * 2 * _SALT, "")
        same = hmac.compare_digest(_digest(salt, secret), digest or _digest(salt, "no secret is this"))
        if not (rows and same and key.startswith(_PREFIX + "_")):
            return None
        [credential] = self._find(id)
        ended = credential.until is not None and credential.until <= self._db.now()
        return None if ended or credential.revoked else credential

    def revoke(self, id: str) -> None:
        """Raises NotFound."""
        with self._db.transaction():
            if not self._find(id):
                raise NotFound(f"no key {id!r:.80}; `memos key list` tells those that there are")
            self._db.write("UPDATE credentials SET revoked = ? WHERE id = ? AND revoked IS NULL", self._db.stamp(), id)

    def forget(self, user_id: str) -> int:
        """Within a transaction: remove all that stand for a user or its agents; how many."""
        return self._db.write("DELETE FROM credentials WHERE user_id = ?", user_id)

    def all(self) -> list[Credential]:
        """Oldest first, those that have ended too."""
        return self._find()

    def _find(self, id: str | None = None) -> list[Credential]:
        sql = "SELECT id, user_id, agent_id, session_id, purposes, at, until, revoked FROM credentials"
        rows = self._db.rows(f"{sql} ORDER BY at, id") if id is None else self._db.rows(f"{sql} WHERE id = ?", id)
        found = list[Credential]()
        for name, user, agent, session, purposes, *times in rows:
            namespace = Namespace(user_id=user, agent_id=agent, session_id=session)
            made, until, revoked = (at and datetime.fromisoformat(at) for at in times)
            found.append(Credential(name, namespace, tuple(json.loads(purposes)), made, until, revoked))
        return found


def _digest(salt: str, secret: str) -> str:
    """The secret is 256 random bits, so that there is nothing to guess and no need for a slow hash."""
    return hmac.new(bytes.fromhex(salt), secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
