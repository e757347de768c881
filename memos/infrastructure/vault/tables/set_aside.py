"""What is set aside of cubes: quarantine, legal holds, and snapshots of their versions and states.

Must not know by which rule, what a hold forbids, nor how a snapshot is gone back to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from memos.cube import MemCube, Namespace, State
from memos.errors import Held, InputError, NotFound
from memos.infrastructure.vault.store.transactions import IN, Store, Table, moment
from memos.rights import is_utf8


class Suspect(NamedTuple):
    """A cube in quarantine."""

    id: str
    why: str
    at: datetime


class QuarantineTable(Table):
    def put(self, id: str, why: str) -> None:
        """Within a transaction."""
        self._db.write("DELETE FROM quarantine WHERE id = ?", id)
        self._db.write("INSERT INTO quarantine VALUES (?, ?, ?)", id, why, self._db.stamp())

    def release(self, id: str, judged: str) -> bool:
        """Within a transaction; False if it was not there. judged: names what was found harmless."""
        if not self._db.write("DELETE FROM quarantine WHERE id = ?", id):
            return False
        self._db.write("INSERT OR IGNORE INTO released VALUES (?, ?)", id, judged)
        return True

    def was_released(self, id: str, judged: str) -> bool:
        """True if just this of the cube was found harmless before."""
        return bool(self._db.rows("SELECT 1 FROM released WHERE id = ? AND judged = ?", id, judged))

    def of(self, ids: list[str]) -> list[Suspect]:
        """Those of `ids` that are there, the latest last."""
        rows = self._db.rows(f"SELECT id, why, at FROM quarantine WHERE id {IN} ORDER BY at, id", json.dumps(ids))
        return [Suspect(id, why, datetime.fromisoformat(at)) for id, why, at in rows]

    def all(self) -> list[Suspect]:
        """The latest last."""
        rows = self._db.rows("SELECT id, why, at FROM quarantine ORDER BY at, id")
        return [Suspect(id, why, datetime.fromisoformat(at)) for id, why, at in rows]

    def arrived(self, user_id: str, origin: str, window_s: float) -> int:
        """Within a transaction: count one more from this origin; how many came within the window, with it."""
        now = self._db.now()
        since = (now - timedelta(seconds=window_s)).isoformat()
        self._db.write("DELETE FROM newcomers WHERE at < ?", since)
        self._db.write("INSERT INTO newcomers VALUES (?, ?, ?)", user_id, origin, now.isoformat())
        sql = "SELECT count(*) FROM newcomers WHERE user_id = ? AND origin = ? AND at >= ?"
        return int(self._db.rows(sql, user_id, origin, since)[0][0])

    def forget(self, user_id: str) -> None:
        """Within a transaction: what came from whom to this user."""
        self._db.write("DELETE FROM newcomers WHERE user_id = ?", user_id)


class LegalHold(NamedTuple):
    """A cube that must stay."""

    id: str
    holder: str
    why: str
    at: datetime


class HoldTable:
    def __init__(self, db: Store, as_written: Callable[[str], str]) -> None:
        """as_written: a reason as it may be kept."""
        self._db, self._as_written = db, as_written

    def put(self, id: str, holder: str, why: str) -> None:
        """Within a transaction. Raises Held for one that is held already."""
        self.require_none([id], "be held twice")
        self._db.write("INSERT INTO holds VALUES (?, ?, ?, ?)", id, holder, self._as_written(why), self._db.stamp())

    def end(self, id: str) -> bool:
        """Within a transaction; False if it was not held."""
        return self._db.write("DELETE FROM holds WHERE id = ?", id) > 0

    def of(self, ids: Iterable[str]) -> list[LegalHold]:
        """Those on `ids`, oldest first."""
        sql = f"SELECT id, holder, why, at FROM holds WHERE id {IN} ORDER BY at, id"
        rows = self._db.rows(sql, json.dumps(list(ids)))
        return [LegalHold(id, holder, why, datetime.fromisoformat(at)) for id, holder, why, at in rows]

    def rename(self, clean: Callable[[str], str]) -> None:
        """Within a transaction: put what `clean` makes of it in the place of each holder and reason."""
        for id, holder, why in self._db.rows("SELECT id, holder, why FROM holds"):
            if (new := (clean(holder), clean(why))) != (holder, why):
                self._db.write("UPDATE holds SET holder = ?, why = ? WHERE id = ?", *new, id)

    def require_none(self, ids: Iterable[str], what: str) -> None:
        """Raises Held, which names who holds which cube, and why."""
        if held := self.of(ids):
            first, more = held[0], f", and {len(held) - 1} more are held" if len(held) > 1 else ""
            raise Held(
                f"cube {first.id} is held by {first.holder} since {first.at:%Y-%m-%d} ({first.why}) and cannot "
                f"{what}{more}; ask {first.holder} to end the hold with `memos end-hold`",
                first.id,
            )


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
        _require_name(name)
        name = self._as_written(name)
        with self._db.transaction():
            for there in (s for s in self.all(owner) if s.name == name):
                raise InputError(
                    f"there is a snapshot {name!r} of {there.at:%Y-%m-%d %H:%M} already; take another name, or delete "
                    f"it with `memos delete-snapshot`"
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
    if not (is_utf8(name) and name.strip() and len(name) <= LONGEST):
        raise InputError(f"{name!r:.80} cannot name a snapshot; give it a name of 1 to {LONGEST} characters in UTF-8")
