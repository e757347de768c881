"""Counts how often memories were used, when and by whom, how much they helped, and how often they were repeated.

Kept apart from versions: a use changes no memory. Must not know what follows from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from memos.cube import Form, Namespace
from memos.infrastructure.vault.store.clock import moment
from memos.infrastructure.vault.store.rows import kept
from memos.infrastructure.vault.store.store import IN, Store

ACCESSES = 12_000  # the latest uses, of which prediction learns again when a kernel starts: some tenths of a second


class UsageTable:
    def __init__(self, db: Store) -> None:
        self._db = db

    def record(self, ids: Iterable[str], when: datetime, user_id: str | None = None) -> None:
        """Count one recall of each, by this user or else by its owner. One that was deleted while its answer was being
        decoded is passed over."""
        names = json.dumps(list(ids))
        with self._db.transaction(lasting=False):
            self._db.write(
                f"""INSERT INTO usage (id, recalls, last) SELECT id, 1, ? FROM heads WHERE id {IN}
                    ON CONFLICT (id) DO UPDATE SET recalls = usage.recalls + 1, last = excluded.last""",
                *(kept(when), names),
            )
            self._db.write(
                """INSERT INTO uses (id, at, user_id) SELECT h.id, ?, ifnull(?, h.user_id) FROM json_each(?) AS named
                   JOIN heads h ON h.id = named.value WHERE h.form = ? GROUP BY h.id ORDER BY min(named.key)""",
                *(kept(when), user_id, names, Form.PLAINTEXT),
            )

    def rate(self, id: str, useful: float, pace: float) -> None:
        """Move the utility of a cube by `pace` of the way to `useful`; that is no recall."""
        with self._db.transaction():
            self._db.write(
                """INSERT INTO usage (id, recalls, last, utility) VALUES (?, 0, ?, ?)
                   ON CONFLICT (id) DO UPDATE SET utility = usage.utility + ? * (? - usage.utility)""",
                *(id, self._db.now().isoformat(), pace * useful, pace, useful),
            )

    def uses(self, since: int = 0) -> list[tuple[int, str, datetime]]:
        """(n, id, when) of each use of a plaintext cube after the one numbered `since`, in the order of their counting;
        memories of one answer share their time. Those of a deleted cube are gone with it."""
        rows = self._db.rows("SELECT n, id, at FROM uses WHERE n > ? ORDER BY n", since)
        return [(n, id, moment(at)) for n, id, at in rows]

    def accesses(self) -> list[tuple[datetime, str, str]]:
        """When, which user, and the first cube of each topic group that was used then; the latest, in order."""
        sql = """SELECT u.at, u.user_id, h.segment, u.id FROM uses u JOIN heads h ON h.id = u.id
                 WHERE u.n > (SELECT max(n) FROM uses) - ? ORDER BY u.n"""
        first: dict[tuple[str, str, str], str] = {}
        for at, user_id, segment, id in self._db.rows(sql, ACCESSES):
            first.setdefault((at, user_id, segment), id)
        return [(moment(at), user_id, id) for (at, user_id, _), id in first.items()]

    def repeat(self, id: str, said: datetime | None, origin: str) -> None:
        """A memory was told again."""
        with self._db.transaction():
            self._db.write("UPDATE heads SET repeats = repeats + 1 WHERE id = ?", id)
            values = (id, kept(said), self._db.stamp(), origin)
            self._db.write("INSERT INTO repeats (id, said, at, origin) VALUES (?, ?, ?, ?)", *values)

    def repeats(self, id: str) -> list[tuple[datetime, datetime | None, str]]:
        """(when that was kept, when it was said, where) of each time that a memory was told again, oldest first."""
        rows = self._db.rows("SELECT at, said, origin FROM repeats WHERE id = ? ORDER BY n", id)
        return [(moment(at), moment(said) if said else None, origin) for at, said, origin in rows]

    def known_origins(self, owner: Namespace) -> set[str]:
        """Where the cubes of a namespace, of every state, come from, and where they were told again."""
        cubes = self._db.rows(
            """SELECT h.id, v.json FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version
               WHERE h.user_id = ? AND h.form = 'plaintext'""",
            owner.user_id,
        )
        heads = ((id, json.loads(content)) for id, content in cubes)
        own = {id: head["header"]["origin"] for id, head in heads if Namespace(**head["namespace"]) == owner}
        again = self._db.rows(
            "SELECT r.id, r.origin FROM repeats r JOIN heads h ON h.id = r.id WHERE h.user_id = ?", owner.user_id
        )
        return {*own.values(), *(origin for id, origin in again if id in own)}
