"""Finds cubes by their age, and by what has replaced them; must not know what becomes of them, nor why."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from memos.cube import Form, MemCube, State
from memos.infrastructure.vault.store.transactions import IN, Table, moment
from memos.infrastructure.vault.tables.cube_table import kept, parsed

RETAIN = "retain:"  # before the name of a class of retention, in a tag


class AgeingTable(Table):
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


class SupersededTable(Table):
    def put(self, id: str, by: str, since: datetime) -> None:
        """Write down that a memory is no longer true from `since` on, because of another."""
        with self._db.transaction():
            values = (id, by, kept(since), self._db.stamp())
            self._db.write("INSERT INTO superseded (id, by, since, at) VALUES (?, ?, ?, ?)", *values)

    def by(self, id: str) -> str | None:
        """The id of what has replaced a memory, or None where nothing has."""
        rows = self._db.rows("SELECT by FROM superseded WHERE id = ? AND undone IS NULL ORDER BY n DESC LIMIT 1", id)
        return str(rows[0][0]) if rows else None

    def replaced(self, by: Iterable[str]) -> dict[str, datetime]:
        """What these have replaced, each with when it ceased to be true."""
        rows = self._db.rows(f"SELECT id, since FROM superseded WHERE undone IS NULL AND by {IN}", json.dumps(list(by)))
        return {id: moment(since) for id, since in rows}

    def undo(self, id: str) -> None:
        """Take that back, if there is anything to take back."""
        with self._db.transaction():
            self._db.write("UPDATE superseded SET undone = ? WHERE id = ? AND undone IS NULL", self._db.stamp(), id)

    def of_user(self, user_id: str, known_at: datetime) -> dict[str, datetime]:
        """The memories of a user that were known to be replaced at a time, each with when it ceased to be true."""
        sql = """SELECT s.id, s.since FROM superseded s JOIN heads h ON h.id = s.id
                 WHERE h.user_id = ? AND s.at <= ? AND (s.undone IS NULL OR s.undone > ?) ORDER BY s.n"""
        at = kept(known_at)
        return {id: moment(since) for id, since in self._db.rows(sql, user_id, at, at)}

    def known(self, user_id: str, at: datetime) -> list[MemCube]:
        """The texts of a user as they were at a time, in canonical order: in the version and the state of then."""
        sql = """SELECT v.json, (SELECT t.state FROM transitions t WHERE t.id = h.id AND t.at <= ?
                                 ORDER BY t.n DESC LIMIT 1) AS state
                 FROM heads h JOIN versions v ON v.id = h.id AND v.version =
                      (SELECT max(w.version) FROM versions w WHERE w.id = h.id AND w.at <= ?)
                 WHERE h.user_id = ? AND h.form = 'plaintext' AND h.words != ''"""
        rows = self._db.rows(sql, kept(at), kept(at), user_id)
        cubes = (parsed(content).model_copy(update={"state": State(state)}) for content, state in rows)
        return sorted(cubes, key=lambda cube: cube.order)
