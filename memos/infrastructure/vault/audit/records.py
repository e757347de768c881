"""Keeps decisions as the rows of a hash chain, and finds them again; must not know how one is decided or signed."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_type_hints

from memos.cube import in_utc
from memos.errors import VaultError
from memos.infrastructure.vault.store.transactions import IN, Rows, Store

UNSEEN = "may not see it"  # in why: to whoever was refused, there is no such target
_PAGE = 10_000  # rows read at once
_EVERY = 2**63 - 1  # rows
COLUMNS = "n, at, caller, action, target, allowed, why, prev, hash, salt, forgetting"


class AuditRow(NamedTuple):
    """One decision; `hash` covers the row and `prev`, the hash of the row before.

    salt: at random, so that nobody can guess from the hash what the row said before it was made to name nobody.
    forgetting: the number of that, or 0.
    """

    n: int
    at: str
    caller: str
    action: str
    target: str
    allowed: bool
    why: str
    prev: str
    hash: str
    salt: str = ""
    forgetting: int = 0

    def expected_hash(self) -> str:
        return digest_of([*self[:8], self.salt])

    @property
    def as_written(self) -> bool:
        """True if all that is in it has the type that it was written in."""
        return all(type(value) is kind for value, kind in zip(self, _KINDS, strict=True))


_KINDS = tuple(get_type_hints(AuditRow).values())


class LoggedDecision(NamedTuple):
    """A row as a caller is told it: without its number and hashes, which count and cover the rows of others."""

    at: str
    caller: str
    action: str
    target: str
    allowed: bool
    why: str


class Decision(NamedTuple):
    """One decision on what somebody asked: written down as a row of the log."""

    caller: str
    action: str
    target: str
    allowed: bool
    why: str


class DecisionLog:
    """Writes decisions down, each with the hash of the one before."""

    def __init__(self, db: Store, every: int) -> None:
        """every: so many rows it is signed."""
        self._db, self._every = db, every

    def sign(self) -> None:
        """Sign what is there, if it is not signed."""
        raise NotImplementedError

    def append(self, caller: str, action: str, target: str, allowed: bool, why: str) -> None:
        """Write down one decision; see `append_all`."""
        self.append_all([Decision(caller, action, target, allowed, why)])

    def append_all(self, decisions: Sequence[Decision], beside: Callable[[], None] | None = None) -> None:
        """Write down decisions in one transaction. A refusal is on disk when this returns; what was allowed, with the
        next write that is. So a write is never on disk without the decision that allowed it, and a read does not wait
        for the disk.

        beside: writes what belongs to these decisions, as the use of what was read, in the same transaction. Raises
        VaultError inside a transaction, which could undo it.
        """
        if self._db.in_transaction:
            names = ", ".join(f"{decision.action} {decision.target}" for decision in decisions)
            raise VaultError(f"the decision on {names} would be lost in a rollback; decide before transaction()")
        # nobody may come between reading the last row and writing the next
        with self._db.transaction(lasting=not all(decision.allowed for decision in decisions)):
            sql = "SELECT n, hash, (SELECT at FROM clock) FROM audit ORDER BY n DESC LIMIT 1"
            last = self._db.rows(sql) if decisions else []
            first, prev = (last[0][0] + 1, last[0][1]) if last else (1, "")
            if last:
                self._db.heard(last[0][2])  # with the same statement
            for n, decision in enumerate(decisions, start=first):
                row = AuditRow(n, self._db.stamp(), *decision, prev, "", secrets.token_hex(16))
                values = row._replace(hash=row.expected_hash())
                self._db.write(f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
                prev = values.hash
            if beside:
                beside()
        if any(n % self._every == 0 for n in range(first, first + len(decisions))):
            self.sign()

    def query(
        self,
        caller: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        limit: int | None = None,
        also: Mapping[str, tuple[Any, ...]] | None = None,
    ) -> list[AuditRow]:
        """The last `limit` decisions of this kind, or all; oldest first. target: it begins with this. since, until: UTC
        where no zone is given. also: further tests in SQL, with their values."""
        given: dict[str, tuple[Any, ...]] = {
            "caller = ?": (caller,),
            "action = ?": (action,),
            "substr(target, 1, length(?)) = ?": (target, target),
            "at >= ?": (since and in_utc(since).isoformat(),),
            "at < ?": (until and in_utc(until).isoformat(),),
            "allowed = ?": (None if allowed is None else int(allowed),),
            **(also or {}),
        }
        asked = {test: values for test, values in given.items() if None not in values}
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        values = [value for of_test in asked.values() for value in of_test]
        sql = f"SELECT {COLUMNS} FROM audit {where} ORDER BY n DESC LIMIT ?"
        return [row_of(row) for row in reversed(self._db.rows(sql, *values, _EVERY if limit is None else limit))]

    def touched(self, user_id: str, viewer: str) -> list[str]:
        """The cubes of a user about which was decided for others than `viewer`, or for it while it did not see them."""
        sql = """SELECT DISTINCT target FROM audit JOIN heads ON id = target
                 WHERE user_id = ? AND (caller != ? OR instr(why, ?) > 0)"""
        return [id for (id,) in self._db.rows(sql, user_id, viewer, UNSEEN)]

    def visible_to(
        self, viewer: str, about: Iterable[str], own_reads: bool = True, **asked: Any
    ) -> list[LoggedDecision]:
        """The same, as far as one caller may be told: what it did, but for asking after what it may not see, and what
        anybody did to one of these targets. own_reads: False: without what it has read itself, with leave."""
        may = {
            f"(caller = ? AND instr(why, ?) = 0 OR target {IN})": (viewer, UNSEEN, json.dumps([*about])),
            "NOT (caller = ? AND action = 'read' AND allowed = 1)": (None if own_reads else viewer,),
        }
        return [LoggedDecision(*row[1:7]) for row in self.query(**asked, also=may)]


def all_rows(db: Rows) -> Iterator[AuditRow]:
    last = -(2**63)
    while rows := db.rows(f"SELECT {COLUMNS} FROM audit WHERE n > ? ORDER BY n LIMIT {_PAGE}", last):
        yield from map(row_of, rows)
        last = rows[-1][0]


def row_of(values: Iterable[Any]) -> AuditRow:
    row = AuditRow(*values)
    return row._replace(allowed=bool(row.allowed)) if row.allowed in (0, 1) else row


def digest_of(values: object) -> str:
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()
