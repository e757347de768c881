"""Keys that stand for a caller; only a salted digest of each is stored.

Knows keys; must not know what their holders may do.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from memos.cube import Namespace
from memos.errors import NotFound
from memos.infrastructure.vault.store.store import Store

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
        return [
            Credential(
                name,
                Namespace(user_id=user, agent_id=agent, session_id=session),
                tuple(json.loads(purposes)),
                datetime.fromisoformat(at),
                until and datetime.fromisoformat(until),
                revoked and datetime.fromisoformat(revoked),
            )
            for name, user, agent, session, purposes, at, until, revoked in rows
        ]


def _digest(salt: str, secret: str) -> str:
    """The secret is 256 random bits, so that there is nothing to guess and no need for a slow hash."""
    return hmac.new(bytes.fromhex(salt), secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
