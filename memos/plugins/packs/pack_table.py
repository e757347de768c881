"""Stores where memories of packs came from, which packs are installed, and whose key has which name.

Knows rows alone. Must not know what a pack holds, nor whom to trust.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from memos.errors import NotFound
from memos.infrastructure.vault.store.extension_tables import ExtensionTable, ExtensionTables
from memos.infrastructure.vault.store.transactions import IN, Store, moment
from memos.plugins.packs.mip import Origin, RegistryEntry

TABLES = (
    ExtensionTable(
        "arrivals",
        (
            """CREATE TABLE arrivals (source TEXT NOT NULL, user_id TEXT NOT NULL, original TEXT NOT NULL,
               id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, here INTEGER NOT NULL, there INTEGER NOT NULL,
               digest TEXT NOT NULL, own INTEGER NOT NULL, origin TEXT NOT NULL,
               PRIMARY KEY (source, user_id, original))""",
            "CREATE INDEX arrivals_id ON arrivals (id)",
        ),
        users=("user_id",),
    ),
    ExtensionTable(
        "packs",
        (
            """CREATE TABLE packs (user_id TEXT NOT NULL, pack TEXT NOT NULL, registry TEXT NOT NULL,
               subscribed INTEGER NOT NULL, at TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (user_id, pack))""",
        ),
        users=("user_id",),
        times=("at",),
    ),
    ExtensionTable(
        "publisher_keys",
        ("CREATE TABLE publisher_keys (name TEXT PRIMARY KEY, public_key TEXT NOT NULL, at TEXT NOT NULL)",),
        times=("at",),
    ),
)
_ARRIVAL = "SELECT original, id, here, there, digest, own, origin FROM arrivals WHERE source = ? AND user_id = ?"


class Arrival(NamedTuple):
    """A memory that came in a pack: `original` there, at version `there`; `id` here, at version `here` as it came.

    digest: of what it said. own: it was here before, and the pack says the very same.
    """

    original: str
    id: str
    here: int
    there: int
    digest: str
    own: bool
    origin: Origin


class Installed(NamedTuple):
    """A pack that a user has taken from a registry."""

    entry: RegistryEntry
    registry: str
    subscribed: bool
    at: datetime

    @property
    def pack(self) -> str:
        return self.entry.said.release.pack


class PackTable:
    """source: the pack, or the key of a dump."""

    def __init__(self, tables: ExtensionTables) -> None:
        self._tables = tables

    @property
    def _db(self) -> Store:
        return self._tables.open(*TABLES)

    def arrivals(self, source: str, user_id: str) -> list[Arrival]:
        """In the order of their ids here."""
        return [_arrival(row) for row in self._db.rows(f"{_ARRIVAL} ORDER BY id", source, user_id)]

    def arrived(self, source: str, user_id: str, originals: Iterable[str]) -> dict[str, Arrival]:
        """Those of these that came before, by what they are called there."""
        rows = self._db.rows(f"{_ARRIVAL} AND original {IN}", source, user_id, json.dumps(list(originals)))
        return {row[0]: _arrival(row) for row in rows}

    def arrive(self, source: str, user_id: str, arrival: Arrival) -> None:
        """Within a transaction. In place of what is there of this original."""
        self._db.write(
            "DELETE FROM arrivals WHERE source = ? AND user_id = ? AND original = ?", source, user_id, arrival.original
        )
        self._db.write(
            """INSERT INTO arrivals (source, user_id, original, id, here, there, digest, own, origin)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            *(source, user_id, *arrival[:5], int(arrival.own), arrival.origin.model_dump_json()),
        )

    def origins(self, id: str) -> list[Origin]:
        """Where a memory came from."""
        rows = self._db.rows("SELECT origin FROM arrivals WHERE id = ? ORDER BY source", id)
        return [Origin.model_validate_json(text) for (text,) in rows]

    def depart(self, source: str, user_id: str) -> None:
        """Within a transaction. The memories of a pack are no longer known as such."""
        self._db.write("DELETE FROM arrivals WHERE source = ? AND user_id = ?", source, user_id)

    # packs

    def install(self, user_id: str, entry: RegistryEntry, registry: str, subscribed: bool) -> None:
        """Within a transaction. In place of another version."""
        pack = entry.said.release.pack
        self._db.write("DELETE FROM packs WHERE user_id = ? AND pack = ?", user_id, pack)
        self._db.write(
            "INSERT INTO packs (user_id, pack, registry, subscribed, at, entry) VALUES (?, ?, ?, ?, ?, ?)",
            *(user_id, pack, registry, int(subscribed), self._db.stamp(), entry.model_dump_json()),
        )

    def uninstall(self, user_id: str, pack: str) -> None:
        """Within a transaction."""
        self._db.write("DELETE FROM packs WHERE user_id = ? AND pack = ?", user_id, pack)

    def installed(self, user_id: str) -> list[Installed]:
        """By name."""
        rows = self._db.rows(
            "SELECT entry, registry, subscribed, at FROM packs WHERE user_id = ? ORDER BY pack", user_id
        )
        return [
            Installed(RegistryEntry.model_validate_json(text), registry, bool(subscribed), moment(at))
            for text, registry, subscribed, at in rows
        ]

    # keys

    def pin(self, name: str, key: str) -> None:
        """From now on this key alone stands for the name."""
        with self._db.transaction():
            self._db.write("DELETE FROM publisher_keys WHERE name = ?", name)
            self._db.write(
                "INSERT INTO publisher_keys (name, public_key, at) VALUES (?, ?, ?)", name, key, self._db.stamp()
            )

    def unpin(self, name: str) -> None:
        """Raises NotFound."""
        with self._db.transaction():
            if not self._db.write("DELETE FROM publisher_keys WHERE name = ?", name):
                raise NotFound(f"no key of {name!r} is trusted here; `memos store keys` lists those that are")

    def pins(self) -> dict[str, str]:
        """Key by name."""
        return dict(self._db.rows("SELECT name, public_key FROM publisher_keys ORDER BY name"))


def _arrival(row: tuple[str, str, int, int, str, int, str]) -> Arrival:
    original, id, here, there, digest, own, origin = row
    return Arrival(original, id, here, there, digest, bool(own), Origin.model_validate_json(origin))
