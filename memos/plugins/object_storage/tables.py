"""The rows that say which object of which bucket is which payload; the one place that decides what may be deleted.

    blob_places    n, url, token (which the bucket's marker repeats), identity of the vault that owns it
    blob_objects   key, place, name (the payload's sha256), bytes, proof (see below), etag, state

    coming --put--> here --drop--> leaving --deleted--> no row
       `---given up-------------------^   `--deleted, but never seen to arrive--> late --deleted again--> no row

A key is used once: the payload's digest and a random id. Every change of state is part of a transaction, which one
process at a time has, so that

- what one process is about to publish nobody deletes: its object is `coming`, or `here` from the transaction on that
  names it. A collector that takes it for given up makes it `leaving` in a transaction of its own, and then `arrive`
  finds no `coming` row, and the payload is brought again, under another key. Time is no part of this: how long
  somebody may take (GIVEN_UP) only says when it pays to look.
- a deletion that a network delivers late hits nothing: its key is never used again.
- a put that a network delivers late, after it was given up, is deleted a second time, an hour later.

The proof of an object is a key, drawn for it alone, and Poly1305's tag of its bytes under it (RFC 8439): what is copied
from a bucket is compared with that as it comes, at several times the rate of sha256, and who can write to the bucket,
but does not read these rows, can forge no object.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from memos.cube import new_id
from memos.infrastructure.vault.store.extension_tables import ExtensionTable
from memos.infrastructure.vault.store.transactions import Rows, Store
from memos.infrastructure.vault.stores import SHELF_OBJECTS, SHELF_PLACES

GIVEN_UP = timedelta(hours=1)  # by the vault's clock, which never goes back; more than a put may take
TABLES = (
    ExtensionTable(
        SHELF_PLACES,
        (
            "CREATE TABLE blob_places (n INTEGER PRIMARY KEY, url TEXT NOT NULL, token TEXT NOT NULL, "
            "identity TEXT NOT NULL)",
        ),
    ),
    ExtensionTable(
        SHELF_OBJECTS,
        (
            "CREATE TABLE blob_objects (key TEXT PRIMARY KEY, place INTEGER NOT NULL, name TEXT NOT NULL, "
            "bytes INTEGER NOT NULL, proof TEXT NOT NULL, etag TEXT NOT NULL, state TEXT NOT NULL, at TEXT NOT NULL)",
            "CREATE INDEX blob_objects_named ON blob_objects (name)",
        ),
        times=("at",),
    ),
)
_COLUMNS = "key, place, name, bytes, proof, etag"


class PlaceRow(NamedTuple):
    """A bucket that has payloads of this vault. identity: of the vault that owns it; a copy of that reads alone."""

    n: int
    url: str
    token: str
    identity: str


class ObjectRow(NamedTuple):
    key: str
    place: int
    name: str
    bytes: int
    proof: str
    etag: str


class ObjectRows:
    """What may be asked."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def places(self) -> list[PlaceRow]:
        """The latest last, which new payloads go to."""
        return [PlaceRow(*row) for row in self._rows.rows("SELECT n, url, token, identity FROM blob_places ORDER BY n")]

    def here(self, name: str) -> ObjectRow | None:
        """The object that a payload is."""
        sql = f"SELECT {_COLUMNS} FROM blob_objects WHERE name = ? AND state = 'here'"
        return next((ObjectRow(*row) for row in self._rows.rows(sql, name)), None)

    def names(self) -> list[str]:
        return [name for (name,) in self._rows.rows("SELECT name FROM blob_objects WHERE state = 'here' ORDER BY name")]

    def outside(self, n: int) -> list[str]:
        """The payloads that are in another place than the n-th."""
        sql = "SELECT name FROM blob_objects WHERE state = 'here' AND place != ? ORDER BY name"
        return [name for (name,) in self._rows.rows(sql, n)]


class ObjectTable(ObjectRows):
    """What may be written, each in a transaction of its own or in the one that goes on."""

    def __init__(self, db: Store) -> None:
        super().__init__(db)
        self._db = db

    def require_place(self, url: str, identity: str) -> PlaceRow:
        """That of a URL, noted if it is new."""
        with self._db.transaction():
            places = self.places()
            for place in places:
                if place.url == url:
                    return place
            new = PlaceRow(max((place.n for place in places), default=0) + 1, url, new_id(), identity)
            self._db.write("INSERT INTO blob_places (n, url, token, identity) VALUES (?, ?, ?, ?)", *new)
            return new

    def own(self, place: PlaceRow, identity: str) -> PlaceRow:
        """A place under another token, as that of this vault."""
        owned = place._replace(token=new_id(), identity=identity)
        with self._db.transaction():
            sql = "UPDATE blob_places SET token = ?, identity = ? WHERE n = ?"
            self._db.write(sql, owned.token, identity, place.n)
        return owned

    def close(self, place: PlaceRow) -> bool:
        """Forget a place that has no object any more; False for one that has."""
        with self._db.transaction():
            if self._db.rows("SELECT 1 FROM blob_objects WHERE place = ? LIMIT 1", place.n):
                return False
            return self._db.write("DELETE FROM blob_places WHERE n = ?", place.n) == 1

    def coming(self, row: ObjectRow) -> None:
        """An object is about to be created."""
        with self._db.transaction():
            sql = f"INSERT INTO blob_objects ({_COLUMNS}, state, at) VALUES (?, ?, ?, ?, ?, ?, 'coming', ?)"
            self._db.write(sql, *row, self._db.stamp())

    def arrive(self, row: ObjectRow) -> bool:
        """What was coming is the payload from now on. False where it was given up meanwhile: then it is not."""
        with self._db.transaction():
            sql = "UPDATE blob_objects SET state = 'here', etag = ?, at = ? WHERE key = ? AND state = 'coming'"
            return self._db.write(sql, row.etag, self._db.stamp(), row.key) == 1

    def leave(self, row: ObjectRow, owned: bool = True) -> None:
        """An object is a payload no longer. owned: by this vault, which alone deletes it."""
        with self._db.transaction():
            if not owned:
                self._db.write("DELETE FROM blob_objects WHERE key = ?", row.key)
                return
            sql = "UPDATE blob_objects SET state = 'leaving', name = '', etag = ?, at = ? WHERE key = ?"
            self._db.write(sql, row.etag, self._db.stamp(), row.key)

    def give_up(self, all: bool = False) -> None:
        """What has been coming for too long is not waited for. all: nobody else is there who could bring it."""
        before = self._db.now().isoformat() if all else (self._db.now() - GIVEN_UP).isoformat()
        if self._db.rows("SELECT 1 FROM blob_objects WHERE state = 'coming' AND at <= ? LIMIT 1", before):
            with self._db.transaction():
                sql = "UPDATE blob_objects SET state = 'leaving', name = '', at = ? WHERE state = 'coming' AND at <= ?"
                self._db.write(sql, self._db.stamp(), before)

    def to_delete(self) -> list[ObjectRow]:
        """What has left, and what was deleted before it could have arrived, long enough ago."""
        sql = f"""SELECT {_COLUMNS} FROM blob_objects
                  WHERE state = 'leaving' OR (state = 'late' AND at <= ?) ORDER BY key"""
        return [ObjectRow(*row) for row in self._db.rows(sql, (self._db.now() - GIVEN_UP).isoformat())]

    def deleted(self, rows: list[ObjectRow]) -> None:
        """These objects are gone. One that was never seen to arrive is deleted again, later."""
        with self._db.transaction():
            at = self._db.stamp()
            never_seen = [(at, row.key) for row in rows if not row.etag]
            self._db.write_many("DELETE FROM blob_objects WHERE key = ? AND state = 'late'", [(r.key,) for r in rows])
            sql = "UPDATE blob_objects SET state = 'late', at = ? WHERE key = ? AND state = 'leaving'"
            self._db.write_many(sql, never_seen)
            sql = "DELETE FROM blob_objects WHERE key = ? AND state = 'leaving'"
            self._db.write_many(sql, [(row.key,) for row in rows])

    def strays(self, place: PlaceRow, listed: set[str]) -> set[str]:
        """Those of the keys, which were listed before, that no row names: an object's row is there before it, unless
        one transaction has both, which has ended when this one begins."""
        with self._db.transaction():
            named = self._db.rows("SELECT key FROM blob_objects WHERE place = ?", place.n)
        return listed - {key for (key,) in named}
