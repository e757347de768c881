"""Tables that plug-ins keep in a vault: made on first use, and described in the vault itself.

    TABLES = (ExtensionTable("visits", ("CREATE TABLE visits (user_id TEXT NOT NULL, at TEXT NOT NULL, id TEXT NOT NULL
              REFERENCES heads (id) ON DELETE CASCADE)",), users=("user_id",), times=("at",)),)
    store = vault.extensions.open(*TABLES)      # asked with each use; cheap once they are there
    with store.transaction():
        store.write("INSERT INTO visits VALUES (?, ?, ?)", user, store.stamp(), cube.id)

What must hold when a cube is deleted or a user is forgotten holds also while the plug-in is not installed: a column
that names a cube refers to `heads` with ON DELETE CASCADE (or without: then the cube cannot be deleted), and the rows
whose `users` columns name a user go with that user. Must not know what the rows are for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from memos.errors import VaultError
from memos.infrastructure.vault.store.schema import in_one_line
from memos.infrastructure.vault.store.transactions import Rows, Store


@dataclass(frozen=True)
class ExtensionTable:
    """One table of a plug-in, in SQLite's dialect; every store runs it.

    statements: that make the table, and then its indexes. users: its columns that name a user. times: its columns that
    hold a time, which `memos vault check` looks at.
    """

    name: str
    statements: tuple[str, ...]
    users: tuple[str, ...] = ()
    times: tuple[str, ...] = ()

    @property
    def made(self) -> Iterator[tuple[str, str]]:
        """(name, statement in one line) of the table and of each index."""
        for statement in map(in_one_line, self.statements):
            if found := re.match(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", statement):
                yield found[1], statement


class ExtensionTables:
    """Those of one vault."""

    def __init__(self, db: Store) -> None:
        self._db = db
        self._open: set[ExtensionTable] = set()  # that are known to be there for good

    def open(self, *tables: ExtensionTable) -> Store:
        """The store, in which these tables are. Raises VaultError where one of another shape is in the place of one."""
        if missing := [table for table in tables if table not in self._open]:
            there = {table.name: table for table in described(self._db)}
            for table in missing:
                if table.name not in there:
                    self._make(table)
                elif {*there[table.name].made} != {*table.made}:
                    raise VaultError(
                        f"the table {table.name} of this vault was made by another version of its plug-in; install "
                        "that version, or write the memories out with `memos dump` and load them into a new vault"
                    )
            if not self._db.in_transaction:  # which could be undone
                self._open.update(missing)
        return self._db

    def _make(self, table: ExtensionTable) -> None:
        with self._db.transaction():
            if any(there.name == table.name for there in described(self._db)):
                return  # another process was first
            for statement in table.statements:
                self._db.define(in_one_line(statement))
            lists = (json.dumps(names) for names in (table.statements, table.users, table.times))
            self._db.write("INSERT INTO extension_tables VALUES (?, ?, ?, ?)", table.name, *lists)

    def forget(self, user_id: str) -> dict[str, int]:
        """Within a transaction: delete the rows that name a user; how many, by table."""
        gone = dict[str, int]()
        for table in described(self._db):
            for column in table.users:
                sql = f"DELETE FROM {table.name} WHERE {column} = ?"
                gone[table.name] = gone.get(table.name, 0) + self._db.write(sql, user_id)
        return gone

    def users(self) -> set[str]:
        """The names of all users that any row names."""
        columns = [(table.name, column) for table in described(self._db) for column in table.users]
        return {user for name, column in columns for (user,) in self._db.rows(f"SELECT DISTINCT {column} FROM {name}")}


def described(db: Rows) -> list[ExtensionTable]:
    """The tables that plug-ins have made in a vault, by name."""
    rows = db.rows("SELECT name, statements, users, times FROM extension_tables ORDER BY name")
    return [ExtensionTable(name, *(tuple(json.loads(part)) for part in parts)) for name, *parts in rows]
