"""Finds cubes by their age: whose time to expire has come, what lies idle, what its retention class ends.

Must not know what becomes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from memos.cube import Form, State
from memos.infrastructure.vault.store.rows import kept
from memos.infrastructure.vault.store.store import IN, Store

RETAIN = "retain:"  # before the name of a class of retention, in a tag


class AgeingTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def lapsed(self, after: datetime, upto: datetime) -> list[str]:
        """The ids of cubes whose time to expire lies after the one and not after the other."""
        sql = "SELECT id FROM heads WHERE expires > ? AND expires <= ?"
        return [id for (id,) in self._db.rows(sql, kept(after), kept(upto))]

    def overdue(self, at: datetime, user_id: str | None = None) -> list[tuple[str, State]]:
        """Cubes whose time to expire has come, with the state that is still written down; of a user, or of all."""
        sql = "SELECT id, state FROM heads WHERE expires <= ? AND state != ? AND user_id = ifnull(?, user_id)"
        return [(id, State(state)) for id, state in self._db.rows(sql, kept(at), State.EXPIRED, user_id)]

    def idle(
        self, states: Iterable[State], before: datetime, kinds: Iterable[str], within: bool, user_id: str | None = None
    ) -> list[str]:
        """Texts in these states that were neither changed, moved nor recalled since `before`, oldest first.

        kinds: of which they are, if `within`; else of which they are not. user_id: of one user; None: of all.
        """
        of_kind = f"json_extract(v.json, '$.header.kind') {'' if within else 'NOT'} {IN}"
        sql = f"""SELECT h.id FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version
                  LEFT JOIN usage u ON u.id = h.id
                  WHERE h.state {IN} AND h.since <= ? AND ifnull(u.last, '') <= ? AND h.form = ?
                  AND h.user_id = ifnull(?, h.user_id) AND {of_kind}
                  ORDER BY h.since"""
        since = kept(before)
        values = json.dumps(list(states)), since, since, Form.PLAINTEXT, user_id, json.dumps(list(kinds))
        return [id for (id,) in self._db.rows(sql, *values)]

    def of_class(self, name: str, before: datetime, user_id: str | None = None) -> list[str]:
        """Texts and turns of a class of retention (NAME of a tag `retain:NAME`, else the kind) that were kept before,
        and have not expired, oldest first. user_id: of one user; None: of all."""
        sql = """SELECT h.id, h.tags, json_extract(v.json, '$.header.kind') FROM heads h
                 JOIN versions v ON v.id = h.id AND v.version = h.version
                 JOIN versions f ON f.id = h.id AND f.version = 1
                 WHERE h.form = ? AND h.state != ? AND f.at <= ? AND h.user_id = ifnull(?, h.user_id) ORDER BY f.at"""
        rows = self._db.rows(sql, Form.PLAINTEXT, State.EXPIRED, kept(before), user_id)
        classes = ((id, [t for t in tags.split("\n") if t.startswith(RETAIN)], kind) for id, tags, kind in rows)
        return [id for id, tags, kind in classes if name == (tags[0].removeprefix(RETAIN) if tags else kind)]
