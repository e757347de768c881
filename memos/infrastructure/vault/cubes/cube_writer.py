"""Writes versions of cubes and the rows that follow from them; must not know whether one may be written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from memos.cube import MemCube, Source, State
from memos.errors import Conflict
from memos.infrastructure.vault.store.rows import HEAD, checksum, facts, head, sources
from memos.infrastructure.vault.store.store import IN, Store

_PUT_HEAD = f"INSERT INTO heads (id, {', '.join(HEAD)}, state, since) VALUES (?, {', '.join('?' * len(HEAD))}, ?, ?)"
_NEXT_HEAD = f""" ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in HEAD)},
                since = excluded.since"""
_PUT_TRANSITION = "INSERT INTO transitions (id, state, at, why, digest) VALUES (?, ?, ?, ?, ?)"


class CubeWriter:
    """All within a transaction."""

    def __init__(self, db: Store) -> None:
        self._db = db

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

    def move(self, id: str, state: State, at: str, why: str) -> None:
        """A cube is in another state since a time."""
        self._db.write("UPDATE heads SET state = ?, since = ? WHERE id = ?", state, at, id)
        row = (id, state, at, why)
        self._db.write(_PUT_TRANSITION, *row, checksum(*row))
