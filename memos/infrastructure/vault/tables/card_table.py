"""Stores what was measured on hosts, by their digests; must not know what the figures mean."""

from __future__ import annotations

import json
from typing import Any

from memos.infrastructure.vault.store.store import Store

Card = dict[str, Any]  # JSON


class CardTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def put(self, host: str, card: Card) -> None:
        """Keep what was measured on the host with this digest, in place of what was."""
        with self._db.transaction():
            self._db.write("DELETE FROM cards WHERE host = ?", host)
            self._db.write("INSERT INTO cards VALUES (?, ?, ?)", host, json.dumps(card), self._db.stamp())

    def of(self, host: str) -> Card | None:
        """What was measured on the host with this digest; None if nothing was."""
        rows = self._db.rows("SELECT json FROM cards WHERE host = ?", host)
        return dict(json.loads(rows[0][0])) if rows else None
