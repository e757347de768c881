"""Stores links between memories, numbers that are kept with them, what curators have done, and what writers cost.

Knows rows alone. A row that names a memory goes with it, and so does what would bring its words back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from memos.infrastructure.vault.store.extension_tables import ExtensionTable, ExtensionTables
from memos.infrastructure.vault.store.transactions import IN, Store, moment
from memos.plugins.curators.signals import StoredLink

_CUBE = "TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE"
TABLES = (
    ExtensionTable(
        "links",
        (
            f"""CREATE TABLE links (a {_CUBE}, b {_CUBE}, kind TEXT NOT NULL, weight REAL NOT NULL, since TEXT,
                until TEXT, by TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (a, b, kind))""",
            "CREATE INDEX links_b ON links (b)",
        ),
        times=("at",),
    ),
    ExtensionTable(
        "memory_scores",
        (
            f"""CREATE TABLE memory_scores (id {_CUBE}, user_id TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
                PRIMARY KEY (id, name))""",
            "CREATE INDEX memory_scores_of ON memory_scores (user_id, name)",
        ),
        users=("user_id",),
    ),
    ExtensionTable(
        "curations",
        (
            """CREATE TABLE curations (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
               user_id TEXT NOT NULL, system TEXT NOT NULL, hook TEXT NOT NULL, at TEXT NOT NULL,
               undone TEXT)""",
            "CREATE INDEX curations_of ON curations (user_id, n)",
        ),
        users=("user_id",),
        times=("at",),
    ),
    # what takes one operation back, of the memory that it was done to
    ExtensionTable(
        "curation_steps",
        (
            f"""CREATE TABLE curation_steps (run INTEGER NOT NULL REFERENCES curations (n) ON DELETE CASCADE,
                n INTEGER NOT NULL, id {_CUBE}, undo TEXT NOT NULL, PRIMARY KEY (run, n))""",
            "CREATE INDEX curation_steps_id ON curation_steps (id)",
        ),
    ),
    # how far a system has read what a user has said
    ExtensionTable(
        "curated",
        (
            """CREATE TABLE curated (user_id TEXT NOT NULL, system TEXT NOT NULL, after TEXT NOT NULL,
               PRIMARY KEY (user_id, system))""",
        ),
        users=("user_id",),
    ),
    ExtensionTable(
        "writer_costs",
        (
            """CREATE TABLE writer_costs (user_id TEXT NOT NULL, system TEXT NOT NULL, calls INTEGER NOT NULL,
               tokens INTEGER NOT NULL, seconds REAL NOT NULL, failed INTEGER NOT NULL,
               PRIMARY KEY (user_id, system))""",
        ),
        users=("user_id",),
    ),
)


class Step(NamedTuple):
    """How one operation is taken back: on which memory, and what to do there (carrying_out.py)."""

    id: str
    undo: dict[str, object]


class Curation(NamedTuple):
    """One run of a curator: what it was called for, when, and how many operations it has left."""

    id: str
    system: str
    hook: str
    at: datetime
    steps: int


@dataclass(frozen=True)
class WriterCost:
    """What the writing of one system has taken so far. calls: schemas filled; tokens: of what was asked and, by a
    model, answered; failed: calls that a model could not answer, so that the rule wrote."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    failed: int = 0


class CuratorTables:
    """Those of one vault."""

    def __init__(self, tables: ExtensionTables) -> None:
        self._tables = tables

    @property
    def _db(self) -> Store:
        return self._tables.open(*TABLES)

    # links and numbers

    def link(self, link: StoredLink, by: str) -> None:
        times = (time and time.isoformat() for time in (link.since, link.until))
        self._db.write("DELETE FROM links WHERE a = ? AND b = ? AND kind = ?", *link[:3])
        self._db.write("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *link[:4], *times, by, self._db.stamp())

    def unlink(self, a: str, b: str, kind: str) -> StoredLink | None:
        """The link that was there."""
        there = [link for link in self.links([a]) if (link.a, link.b, link.kind) == (a, b, kind)]
        self._db.write("DELETE FROM links WHERE a = ? AND b = ? AND kind = ?", a, b, kind)
        return there[0] if there else None

    def links(self, ids: Iterable[str]) -> list[StoredLink]:
        """All at or from these memories."""
        given = json.dumps(list(ids))
        columns = "SELECT a, b, kind, weight, since, until FROM links WHERE"
        rows = self._db.rows(f"{columns} a {IN} UNION {columns} b {IN} ORDER BY a, b, kind", given, given)
        return [StoredLink(*row[:4], *(time and moment(time) for time in row[4:])) for row in rows]

    def score(self, id: str, user_id: str, name: str, value: float | None) -> float | None:
        """Set a number, or take it away for None; what it was."""
        rows = self._db.rows("SELECT value FROM memory_scores WHERE id = ? AND name = ?", id, name)
        self._db.write("DELETE FROM memory_scores WHERE id = ? AND name = ?", id, name)
        if value is not None:
            self._db.write("INSERT INTO memory_scores VALUES (?, ?, ?, ?)", id, user_id, name, value)
        return float(rows[0][0]) if rows else None

    def scores(self, user_id: str, name: str) -> dict[str, float]:
        return {
            str(id): float(value)
            for id, value in self._db.rows(
                "SELECT id, value FROM memory_scores WHERE user_id = ? AND name = ?", user_id, name
            )
        }

    # runs

    def keep_run(self, id: str, user_id: str, system: str, hook: str, steps: Sequence[Step]) -> None:
        now = self._db.stamp()
        self._db.write(
            "INSERT INTO curations (id, user_id, system, hook, at) VALUES (?, ?, ?, ?, ?)",
            id,
            user_id,
            system,
            hook,
            now,
        )
        [(run,)] = self._db.rows("SELECT n FROM curations WHERE id = ?", id)
        self._db.write_many(
            "INSERT INTO curation_steps VALUES (?, ?, ?, ?)",
            ((run, n, step.id, json.dumps(step.undo, ensure_ascii=False)) for n, step in enumerate(steps)),
        )

    def runs(self, user_id: str, most: int) -> list[Curation]:
        """The latest of a user that are not undone, the last first."""
        rows = self._db.rows(
            """SELECT c.id, c.system, c.hook, c.at, count(s.n) FROM curations c
               LEFT JOIN curation_steps s ON s.run = c.n
               WHERE c.user_id = ? AND c.undone IS NULL GROUP BY c.n, c.id, c.system, c.hook, c.at
               ORDER BY c.n DESC LIMIT ?""",
            user_id,
            most,
        )
        return [Curation(id, system, hook, moment(at), steps) for id, system, hook, at, steps in rows]

    def steps(self, user_id: str, id: str) -> list[Step]:
        """Of a run that is not undone, the last first."""
        rows = self._db.rows(
            """SELECT s.id, s.undo FROM curation_steps s JOIN curations c ON c.n = s.run
               WHERE c.user_id = ? AND c.id = ? AND c.undone IS NULL ORDER BY s.n DESC""",
            user_id,
            id,
        )
        return [Step(of, json.loads(undo)) for of, undo in rows]

    def later(self, user_id: str, id: str) -> list[str]:
        """Runs after this one, not undone, that changed a memory which it changed, too; the first of them first."""
        rows = self._db.rows(
            """SELECT DISTINCT d.n, d.id FROM curations c JOIN curation_steps s ON s.run = c.n
               JOIN curation_steps t ON t.id = s.id AND t.run > c.n JOIN curations d ON d.n = t.run
               WHERE c.user_id = ? AND c.id = ? AND d.undone IS NULL ORDER BY d.n""",
            user_id,
            id,
        )
        return [str(id) for _, id in rows]

    def undone(self, user_id: str, id: str) -> None:
        self._db.write("UPDATE curations SET undone = ? WHERE user_id = ? AND id = ?", self._db.stamp(), user_id, id)

    # how far, and what for

    def after(self, user_id: str, system: str) -> str:
        """The id of the last turn that a system has read; "" before the first."""
        rows = self._db.rows("SELECT after FROM curated WHERE user_id = ? AND system = ?", user_id, system)
        return str(rows[0][0]) if rows else ""

    def read_to(self, user_id: str, system: str, after: str) -> None:
        self._db.write("DELETE FROM curated WHERE user_id = ? AND system = ?", user_id, system)
        self._db.write("INSERT INTO curated VALUES (?, ?, ?)", user_id, system, after)

    def systems(self, user_id: str) -> list[str]:
        """Those that have curated what a user has said."""
        return [str(name) for (name,) in self._db.rows("SELECT system FROM curated WHERE user_id = ?", user_id)]

    def spend(self, user_id: str, system: str, cost: WriterCost) -> None:
        before = self.spent(user_id, system)
        self._db.write("DELETE FROM writer_costs WHERE user_id = ? AND system = ?", user_id, system)
        self._db.write(
            "INSERT INTO writer_costs VALUES (?, ?, ?, ?, ?, ?)",
            user_id,
            system,
            before.calls + cost.calls,
            before.tokens + cost.tokens,
            before.seconds + cost.seconds,
            before.failed + cost.failed,
        )

    def spent(self, user_id: str, system: str) -> WriterCost:
        rows = self._db.rows(
            "SELECT calls, tokens, seconds, failed FROM writer_costs WHERE user_id = ? AND system = ?", user_id, system
        )
        return WriterCost(*rows[0]) if rows else WriterCost()
