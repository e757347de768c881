"""A hash chain of decisions. Knows whether its rows are as they were written; must not know how one is decided."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from memos.errors import VaultError
from memos.infrastructure.database import Database, now


class AuditRow(NamedTuple):
    """One decision; `hash` covers the row and `prev`, the hash of the row before."""

    n: int
    at: str
    caller: str
    action: str
    target: str
    allowed: bool
    why: str
    prev: str
    hash: str

    def expected_hash(self) -> str:
        return hashlib.sha256(json.dumps(self[:-1]).encode()).hexdigest()


class AuditLog:
    def __init__(self, db: Database) -> None:
        self._db = db

    def append(self, caller: str, action: str, target: str, allowed: bool, why: str) -> None:
        """On disk when this returns. Raises VaultError inside a transaction, which could undo it."""
        with self._db.lock:
            if self._db.in_transaction:
                raise VaultError(
                    f"the decision on {action} {target} would be lost in a rollback; decide before transaction()"
                )
            with self._db.transaction():  # nobody may come between reading the last row and writing the next
                last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
                n, prev = (last[0][0] + 1, last[0][1]) if last else (1, "")
                row = AuditRow(n, now(), caller, action, target, allowed, why, prev, "")
                values = row._replace(hash=row.expected_hash())
                self._db.write("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)

    def rows(self, limit: int | None = None) -> list[AuditRow]:
        """The last `limit` decisions, or all; oldest first."""
        rows = self._db.rows("SELECT * FROM audit ORDER BY n DESC LIMIT ?", -1 if limit is None else limit)
        return [AuditRow(*row)._replace(allowed=bool(row[5])) for row in reversed(rows)]

    def verify(self) -> list[str]:
        """Rows that were changed, removed or put in. One who rewrites the whole chain is not found out."""
        problems, n, prev = [], 0, ""
        for row in self.rows():
            n += 1
            if row.n != n or row.prev != prev or row.hash != row.expected_hash():
                problems.append(f"audit row {row.n} was changed, or does not follow the row before it")
            n, prev = row.n, row.hash
        [(highest,)] = self._db.rows("SELECT max(seq) FROM sqlite_sequence WHERE name = 'audit'")
        if highest is not None and highest > n:
            problems.append(f"audit rows {n + 1} to {highest} were removed")
        return problems
