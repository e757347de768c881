"""Counts how much a vault holds, and checks how much it may; must not know what rows and files are for."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from memos.config import QuotaConfig
from memos.cube import Form, State
from memos.errors import QuotaExceeded
from memos.infrastructure.vault.store.on_disk import size_of
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION
from memos.infrastructure.vault.store.transactions import IN, Store
from memos.infrastructure.vault.tables.cube_table import STATE

_FOLDERS = ("blobs", "index", "work", "tmp")
_BLOBS = """SELECT CAST(ifnull(sum(bytes), 0) AS BIGINT) FROM (
            SELECT DISTINCT json_extract(json, '$.payload.sha256') AS sha256,
            CAST(json_extract(json, '$.payload.bytes') AS BIGINT) AS bytes
            FROM versions WHERE json_extract(json, '$.payload.sha256') IS NOT NULL) AS blobs"""


class VaultStats:
    def __init__(self, folder: Path, db: Store, quota: QuotaConfig) -> None:
        self._folder, self._db, self._quota = folder, db, quota
        self.limited = quota != QuotaConfig()

    def all(self) -> dict[str, Any]:
        """Cubes by form and state, versions, users, jobs, bytes by place and of journals, quotas with what is used."""
        cubes: dict[str, dict[str, int]] = defaultdict(dict)
        for form, state, count in self._db.rows("SELECT form, state, count(*) FROM heads GROUP BY form, state"):
            cubes[form][state] = count
        [(versions,)] = self._db.rows("SELECT count(*) FROM versions")
        by_user = "SELECT user_id, count(*) FROM heads GROUP BY user_id ORDER BY user_id"
        users: dict[str, int] = dict(self._db.rows(by_user))
        jobs: dict[str, int] = dict(self._db.rows("SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state"))
        places = self._db.sizes() | {name: _size(self._folder / name) for name in _FOLDERS}
        most = max(users.values(), default=0)
        used = {"bytes": self.bytes(), "blob_bytes": self._blob_bytes(), "cubes_per_user": most}
        return {
            "folder": str(self._folder),
            "schema": SCHEMA_VERSION,
            "cubes": dict(cubes),
            "versions": versions,
            "users": users,
            "jobs": jobs,
            "bytes": places,
            "journals": self._db.journals(),
            "quotas": {name: {"used": n, "limit": getattr(self._quota, name)} for name, n in used.items()},
        }

    def usage_by_user(self, form: Form) -> dict[str, tuple[int, int]]:
        """(cubes, bytes of their payloads) of this form that each user has in use."""
        sql = """SELECT h.user_id, count(*),
                 CAST(ifnull(sum(CAST(json_extract(v.json, '$.payload.bytes') AS BIGINT)), 0) AS BIGINT) FROM versions v
                 JOIN heads h ON h.id = v.id AND h.version = v.version WHERE h.form = ? AND h.state = ?
                 GROUP BY h.user_id"""
        return {user: (count, size) for user, count, size in self._db.rows(sql, form, State.ACTIVATED)}

    def in_use(self, blobs: Iterable[str]) -> set[str]:
        """Those of the blobs, by sha256, that belong to a cube in use."""
        sha256 = "json_extract(v.json, '$.payload.sha256')"
        sql = f"""SELECT {sha256} FROM versions v JOIN heads h ON h.id = v.id AND h.version = v.version
                  WHERE {sha256} {IN} AND {STATE} = ?"""
        values = json.dumps(list(blobs)), self._db.now().isoformat(), State.ACTIVATED
        return {sha256 for (sha256,) in self._db.rows(sql, *values)}

    def count(self, user_id: str, states: Iterable[State]) -> int:
        """The memories of a user in one of these states."""
        sql = f"SELECT count(*) FROM heads h WHERE h.user_id = ? AND h.words != '' AND {STATE} {IN}"
        return int(self._db.rows(sql, user_id, self._db.now().isoformat(), json.dumps(list(states)))[0][0])

    def bytes(self) -> int:
        """Of all that is kept; not of what is under way or was set aside."""
        rows = sum((*self._db.sizes().values(), *self._db.journals().values()))
        return rows + _size(self._folder / "index") + self._blob_bytes()

    def require_room(self, size: int, blob: int, users: Sequence[str] = ()) -> None:
        """For so many bytes, or so many of a payload, and for one more cube of each of the users named, who may be
        named again. Raises QuotaExceeded, VaultError."""
        self._db.require_room()
        limits = self._quota
        for user_id, more in Counter(users).items() if limits.cubes_per_user is not None else ():
            [(cubes,)] = self._db.rows("SELECT count(*) FROM heads WHERE user_id = ?", user_id)
            if cubes + more > limits.cubes_per_user:
                raise QuotaExceeded(
                    f"user {user_id} has {cubes} cubes, of {limits.cubes_per_user} that vault.quota.cubes_per_user "
                    "allows; delete some, or raise it"
                )
        for name, more, used in (("blob_bytes", blob, self._blob_bytes), ("bytes", size, self.bytes)):
            limit = getattr(limits, name)
            if limit is not None and more and (there := used()) + more > limit:
                raise QuotaExceeded(
                    f"{self._folder} holds {there} bytes, {more} more would pass the {limit} of vault.quota.{name}; "
                    "delete what is not needed and run `memos vault compact`, or raise it"
                )

    def _blob_bytes(self) -> int:
        return int(self._db.rows(_BLOBS)[0][0])


def _size(path: Path) -> int:
    """Bytes of a file or of all files in a folder; one that goes meanwhile counts for nothing."""
    return sum(size_of(part) for part in (path, *path.rglob("*")) if part.is_file())
