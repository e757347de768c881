"""Reads and writes cubes: their versions, the rows that follow from these, what they say, and how they are used.

Must not know why a cube is wanted, nor whether one may be written.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import xxhash
from pydantic import BaseModel, TypeAdapter, ValidationError

from memos.cube import Fact, Form, MemCube, Namespace, Source, State, Text, Usage, in_utc, plain
from memos.errors import Conflict
from memos.infrastructure.vault.store.transactions import IN, Table, moment, odd_row

_LENGTH = struct.Struct("<Q").pack
# of `head`, in order
HEAD = ("version", "form", "segment", "user_id", "expires", "words", "tags")


def head(cube: MemCube) -> tuple[int | str | None, ...]:
    """The columns HEAD of the current version of a cube."""
    about = cube.header
    text = words(cube.text) if cube.text else ""
    place = (cube.form.value, about.segment, cube.namespace.user_id)
    return cube.version, *place, kept(about.expires), text, "\n".join(about.tags)


def facts(cube: MemCube) -> list[tuple[str, ...]]:
    """Rows (id, user_id, subject, relation, object, mode)."""
    found = cube.payload.facts if isinstance(cube.payload, Text) else ()
    about = ((f.subject.casefold(), f.relation, f.object.casefold(), f.mode) for f in found)
    return [(cube.id, cube.namespace.user_id, *fact) for fact in about]


def sources(cube: MemCube) -> list[tuple[str, str, int]]:
    """Rows (derived id, source id, source version); one source named twice is one."""
    first = {source.id: source.version for source in reversed(cube.sources)}
    return [(cube.id, id, version) for id, version in first.items()]


def words(text: str) -> str:
    """A digest of a text's words, the same for all texts that differ in case, spaces and punctuation only."""
    return hashlib.sha256(plain(text).encode()).hexdigest()[:32]


def kept(when: datetime | None) -> str | None:
    """A time as it is kept, so that it sorts as text. Raises InputError."""
    return None if when is None else in_utc(when).isoformat()


def checksum(*values: str | int | bytes) -> str:
    """Of the values of a row that is not changed once it is written. Against accidents, not against people."""
    digest = xxhash.xxh3_128()
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode()
        digest.update(_LENGTH(len(part)))
        digest.update(part)
    return str(digest.hexdigest())


CUBE = """SELECT v.json, h.state, h.repeats, u.recalls, u.last, u.utility FROM heads h JOIN versions v ON v.id = h.id
          LEFT JOIN usage u ON u.id = h.id """
DERIVED = """WITH RECURSIVE tree (id) AS (
                SELECT derived_id FROM sources WHERE source_id IN (SELECT value FROM json_each(?))
                UNION SELECT s.derived_id FROM sources s JOIN tree ON s.source_id = tree.id)
              SELECT id FROM tree"""
CURRENT = CUBE + "WHERE v.version = h.version "
STATE = "CASE WHEN h.expires <= ? THEN 'expired' ELSE h.state END"  # as `CubeRows.cube` tells it; of now


class CubeRows(Table):
    """Reads cubes, each with the state and usage of now."""

    def current(self, test: str = "", *values: object) -> list[MemCube]:
        """The current versions that pass a test ("AND …" in SQL), in canonical order."""
        return self.read(CURRENT + test, *values)

    def read(self, sql: str, *values: object) -> list[MemCube]:
        """The cubes that a statement gives, whose columns are those of CUBE, in canonical order."""
        return sorted(map(self.cube, self._db.rows(sql, *values)), key=lambda cube: cube.order)

    def cube(self, row: Sequence[Any]) -> MemCube:
        """One whose time to expire has come is expired, whatever state is written down."""
        content, written, repeats, recalls, last, utility = row
        cube = parsed(content)
        state = cube.state if written == cube.state else state_of(written)
        if cube.header.expires is not None and cube.header.expires <= self._db.now():
            state = State.EXPIRED
        if recalls or repeats or utility:
            return cube.model_copy(update={"state": state, "usage": _usage_of(recalls, last, repeats, utility)})
        return cube if state == cube.state else cube.model_copy(update={"state": state})

    def transitions(self, id: str) -> list[tuple[datetime, State, str]]:
        """The states that a cube has been in and why, oldest first."""
        rows = self._db.rows("SELECT at, state, why FROM transitions WHERE id = ? ORDER BY n", id)
        return [(moment(at), state_of(state), why) for at, state, why in rows]

    # by what they say

    def saying(self, texts: Iterable[str], user_id: str) -> list[MemCube]:
        """The cubes of a user, of every state, whose current text has the words of one of these, in canonical order."""
        digests = json.dumps([words(text) for text in texts])
        return self.current(f"AND h.words {IN} AND h.user_id = ?", digests, user_id)

    def texts_after(self, id: str, most: int) -> list[MemCube]:
        """The texts of all users whose ids come after this one, by id."""
        rows = self._db.rows(f"{CURRENT} AND h.words != '' AND h.id > ? ORDER BY h.id LIMIT ?", id, most)
        return [self.cube(row) for row in rows]

    def tagged(self, tag: str, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The texts of a user in one of these states that have a tag, in canonical order."""
        cubes = self._in("AND h.tags != '' AND h.words != '' AND h.user_id = ?", states, user_id)
        return [cube for cube in cubes if tag in cube.header.tags]

    def agreeing(self, fact: Fact, user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that state a fact's very subject, relation and object."""
        known = "SELECT id FROM facts WHERE user_id = ? AND subject = ? AND relation = ? AND object = ?"
        about = (user_id, fact.subject.casefold(), fact.relation, fact.object.casefold())
        return self._in(f"AND h.id IN ({known})", states, *about)

    def stating(self, fact: Fact, modes: Iterable[str], user_id: str, states: Iterable[State]) -> list[MemCube]:
        """The cubes of a user, in one of these states, that say anything in one of these modes about the fact's subject
        and relation (of every relation, where it names none), in canonical order. What says the very same is left out,
        unless it says that it has ended, or this does.
        """
        relation = "AND relation IN (?, '')" if fact.relation else ""
        known = f"""SELECT id FROM facts WHERE user_id = ? AND subject = ? {relation} AND mode {IN}
                    AND (object != ? OR mode = 'ended' OR ? = 'ended')"""
        about = (fact.subject.casefold(), *([fact.relation] if fact.relation else []), json.dumps(list(modes)))
        return self._in(f"AND h.id IN ({known})", states, user_id, *about, fact.object.casefold(), fact.mode)

    def _in(self, test: str, states: Iterable[State], *values: object) -> list[MemCube]:
        """Those that pass a test and are in one of these states."""
        return self.current(f"{test} AND {STATE} {IN}", *values, kept(self._db.now()), json.dumps(list(states)))


_of_json = TypeAdapter(MemCube).validator.validate_json
_STATES = {state.value: state for state in State}


@lru_cache(maxsize=1 << 14)  # the cubes of busy topic groups are read with every request
def parsed(content: str) -> MemCube:
    """A version as its JSON says. Raises VaultError for what is no cube."""
    try:
        cube: MemCube = _of_json(content)
    except ValidationError:
        raise odd_row(content) from None
    for part in (cube, cube.namespace, cube.rights, cube.header, cube.payload):
        # a set for each would be two thirds of what a cube takes here, 3 of 4.4 kB
        object.__setattr__(part, "__pydantic_fields_set__", _fields(type(part)))
    return cube


@cache
def _fields(kind: type[BaseModel]) -> set[str]:
    """Of a value that was read as it is kept, whole: pydantic copies the set before it changes one."""
    return set(kind.model_fields)


def _usage_of(recalls: int | None, last: str | None, repeats: int, utility: float | None) -> Usage:
    when = moment(last) if recalls else None
    try:
        return Usage(recalls=recalls or 0, last_recalled=when, repeats=repeats, utility=utility or 0.0)
    except ValidationError:
        raise odd_row((recalls, repeats, utility)) from None


def state_of(written: str) -> State:
    """A state as it is written down. Raises VaultError for what is none."""
    try:
        return _STATES[written]
    except KeyError:
        raise odd_row(written) from None


_PUT_HEAD = f"INSERT INTO heads (id, {', '.join(HEAD)}, state, since) VALUES (?, {', '.join('?' * len(HEAD))}, ?, ?)"
_NEXT_HEAD = f""" ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in HEAD)},
                since = excluded.since"""
_PUT_TRANSITION = "INSERT INTO transitions (id, state, at, why, digest) VALUES (?, ?, ?, ?, ?)"


class CubeWriter(Table):
    """All within a transaction."""

    def require_next(self, cubes: Sequence[MemCube]) -> None:
        """Raises Conflict unless each is the version after the current one."""
        ids = [cube.id for cube in cubes]
        which, names = ("= ?", ids[0]) if len(ids) == 1 else (IN, json.dumps(ids))
        current: dict[str, int] = dict(self._db.rows(f"SELECT id, version FROM heads WHERE id {which}", names))
        for cube in cubes:
            was = current.get(cube.id, 0)
            if cube.version != was + 1:
                raise Conflict(
                    f"cube {cube.id} is at version {was}, so {cube.version} cannot be next; read it again and retry"
                )
        if len(set(ids)) < len(ids):
            raise Conflict("a cube is named twice; put one version after the other")

    def missing_sources(self, cube: MemCube) -> list[Source]:
        """The sources of a cube that are not there."""
        sql = "SELECT 1 FROM versions WHERE id = ? AND version = ?"
        return [source for source in cube.sources if not self._db.rows(sql, source.id, source.version)]

    def write(self, cubes: Sequence[MemCube], contents: Iterable[tuple[str, int, str, str]], at: str) -> None:
        """contents: (id, version, JSON, time) of each."""
        self._db.write_many(
            "INSERT INTO versions (id, version, json, at, digest) VALUES (?, ?, ?, ?, ?)",
            [(*row, checksum(*row)) for row in contents],
        )
        if first := [cube for cube in cubes if cube.version == 1]:
            self._db.write_many(_PUT_HEAD, [(cube.id, *head(cube), cube.state.value, at) for cube in first])
            moves = [(cube.id, cube.state.value, at, "created") for cube in first]
            self._db.write_many(_PUT_TRANSITION, [(*row, checksum(*row)) for row in moves])
        if later := [cube for cube in cubes if cube.version > 1]:
            self._db.write_many(_PUT_HEAD + _NEXT_HEAD, [(c.id, *head(c), c.state.value, at) for c in later])
            for what in ("vectors WHERE id", "sources WHERE derived_id", "facts WHERE id"):  # of the version before
                self._db.write_many(f"DELETE FROM {what} = ?", [(cube.id,) for cube in later])
        if named := [row for cube in cubes for row in sources(cube)]:
            self._db.write_many("INSERT INTO sources VALUES (?, ?, ?)", named)
        if stated := [row for cube in cubes for row in facts(cube)]:
            self._db.write_many("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", stated)

    def move(self, ids: Sequence[str], state: State, at: str, why: str) -> None:
        """Cubes are in another state since a time."""
        self._db.write(f"UPDATE heads SET state = ?, since = ? WHERE id {IN}", state, at, json.dumps(ids))
        rows = [(id, state, at, why) for id in ids]
        self._db.write_many(_PUT_TRANSITION, [(*row, checksum(*row)) for row in rows])

    def delete(self, ids: Sequence[str]) -> None:
        """Remove cubes: by cascade all but their versions, and then these."""
        parsed.cache_clear()
        for table in ("heads", "versions"):
            self._db.write(f"DELETE FROM {table} WHERE id {IN}", json.dumps(ids))


ACCESSES = 12_000  # the latest uses, of which prediction learns again when a kernel starts: some tenths of a second


class UsageTable(Table):
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
        sql = "SELECT r.id, r.origin FROM repeats r JOIN heads h ON h.id = r.id WHERE h.user_id = ?"
        again = self._db.rows(sql, owner.user_id)
        return {*own.values(), *(origin for id, origin in again if id in own)}
