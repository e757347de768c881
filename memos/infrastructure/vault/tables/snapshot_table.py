"""Snapshots: the version and state of each cube of a namespace at some time, as places in append-only histories.

Copies no content, and keeps no trace of a cube that is deleted. Must not know how one is gone back to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from memos.cube import MemCube, Namespace, State
from memos.errors import InputError, NotFound
from memos.infrastructure.vault.store.clock import moment
from memos.infrastructure.vault.store.store import Store

LONGEST = 200  # characters of a name


class Snapshot(NamedTuple):
    """cubes: how many there were. missing: how many of them were deleted since."""

    name: str
    at: datetime
    cubes: int
    missing: int


class SnapshotTable:
    def __init__(
        self, db: Store, as_written: Callable[[str], str], owned: Callable[[Namespace], Iterable[MemCube]]
    ) -> None:
        """as_written: a name as it may be kept, under which it is found too. owned: the cubes that a snapshot is of."""
        self._db, self._as_written, self._owned = db, as_written, owned

    def take(self, owner: Namespace, name: str) -> Snapshot:
        """Write down the versions and states of what is the owner's. Raises InputError for a name that is empty, too
        long, no text, or taken."""
        with self._db.transaction():
            return self._take(owner, name)

    def _take(self, owner: Namespace, name: str) -> Snapshot:
        _require_name(name)
        name = self._as_written(name)
        for there in (s for s in self.all(owner) if s.name == name):
            raise InputError(
                f"there is a snapshot {name!r} of {there.at:%Y-%m-%d %H:%M} already; take another name, or delete it "
                f"with `memos delete-snapshot`"
            )
        rows = [(cube.id, cube.version, cube.state) for cube in self._owned(owner)]
        sql = "INSERT INTO snapshots (namespace, name, at, cubes) VALUES (?, ?, ?, ?)"
        self._db.write(sql, owner.model_dump_json(), name, self._db.stamp(), len(rows))
        n = self._find(owner, name)
        self._db.write_many("INSERT INTO snapshot_cubes VALUES (?, ?, ?, ?)", ((n, *row) for row in rows))
        return self.all(owner)[-1]

    def all(self, owner: Namespace) -> list[Snapshot]:
        """Oldest first."""
        rows = self._db.rows(
            """SELECT name, at, cubes, cubes - (SELECT count(*) FROM snapshot_cubes c WHERE c.snapshot = s.n)
               FROM snapshots s WHERE namespace = ? ORDER BY n""",
            owner.model_dump_json(),
        )
        return [Snapshot(name, moment(at), cubes, missing) for name, at, cubes, missing in rows]

    def of(self, owner: Namespace, name: str) -> dict[str, tuple[int, State]]:
        """The version and state of each cube by id. Raises NotFound."""
        sql = "SELECT id, version, state FROM snapshot_cubes WHERE snapshot = ?"
        rows = self._db.rows(sql, self._find(owner, name))
        return {id: (version, State(state)) for id, version, state in rows}

    def delete(self, owner: Namespace, name: str) -> None:
        """Raises NotFound."""
        with self._db.transaction():
            self._db.write("DELETE FROM snapshots WHERE n = ?", self._find(owner, name))

    def forget(self, user_id: str) -> int:
        """Within a transaction: delete all of a user's, whatever the agent or session; how many."""
        rows = self._db.rows("SELECT n, namespace FROM snapshots")
        own = [n for n, namespace in rows if Namespace.model_validate_json(namespace).user_id == user_id]
        return sum(self._db.write("DELETE FROM snapshots WHERE n = ?", n) for n in own)

    def _find(self, owner: Namespace, name: str) -> int:
        name, sql = self._as_written(name), "SELECT n FROM snapshots WHERE namespace = ? AND name = ?"
        for (n,) in self._db.rows(sql, owner.model_dump_json(), name):
            return int(n)
        names = ", ".join(repr(s.name) for s in self.all(owner)[-5:])
        way_out = f"the latest are {names}" if names else "there is none yet; take one with `memos snapshot NAME`"
        raise NotFound(f"no snapshot {name!r} of {owner}: {way_out}")


def _require_name(name: str) -> None:
    try:
        name.encode()
        sound = bool(name.strip()) and len(name) <= LONGEST
    except UnicodeEncodeError:
        sound = False
    if not sound:
        raise InputError(f"{name!r:.80} cannot name a snapshot; give it a name of 1 to {LONGEST} characters in UTF-8")
