"""Salted digests of who and what was forgotten, enough to forget it again when an older copy is restored.

Holds no names; must not know how anything is removed.

One who knows a name can test whether it stands here; nobody can read a name from it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from memos.infrastructure.vault.store.clock import moment
from memos.infrastructure.vault.store.store import Rows, Store

What = Literal["cube", "user"]


class Forgotten(NamedTuple):
    """The digest of a salt and the id of a cube, or the name of a user; of a user, all from before `at` is meant."""

    digest: str
    salt: str
    what: What
    at: datetime


class ForgottenLedger:
    def __init__(self, db: Store) -> None:
        self._db = db

    def add(self, what: What, names: Iterable[str]) -> list[str]:
        """Within a transaction; the digests. Cubes share a salt, so that an old copy is compared with one pass."""
        salt, at = secrets.token_hex(16), self._db.stamp()
        digests = [_digest(salt, name) for name in names]
        sql = "INSERT INTO forgotten (digest, salt, what, at) VALUES (?, ?, ?, ?)"
        self._db.write_many(sql, ((digest, salt, what, at) for digest in digests))
        return digests

    def all(self) -> list[Forgotten]:
        """Oldest first."""
        return entries(self._db)

    def merge(self, others: Iterable[Forgotten]) -> None:
        """Within a transaction: what another copy of the ledger has, too."""
        known = {entry.digest for entry in self.all()}
        new = {entry.digest: entry for entry in others if entry.digest not in known}
        sql = "INSERT INTO forgotten (digest, salt, what, at) VALUES (?, ?, ?, ?)"
        self._db.write_many(sql, ((e.digest, e.salt, e.what, e.at.isoformat()) for e in new.values()))


def entries(db: Rows) -> list[Forgotten]:
    """Oldest first."""
    rows = db.rows("SELECT digest, salt, what, at FROM forgotten ORDER BY at, digest")
    return [Forgotten(digest, salt, what, moment(at)) for digest, salt, what, at in rows]


def named(entries: Iterable[Forgotten], what: What, names: Iterable[str]) -> dict[str, datetime]:
    """Those of `names` that are in the ledger, each with the last time that it was forgotten."""
    of_salt: dict[str, dict[str, datetime]] = {}
    for entry in entries:
        if entry.what == what:
            of_salt.setdefault(entry.salt, {})[entry.digest] = entry.at
    found: dict[str, datetime] = {}
    for name in names:
        for salt, digests in of_salt.items():
            if at := digests.get(_digest(salt, name)):
                found[name] = max(at, found.get(name, at))
    return found


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}\0{name}".encode()).hexdigest()
