"""What a vault asks of the database that holds its rows.

There is one dialect of SQL, SQLite's: a file runs it as it is, and a server that several machines share translates it.

Names no database, and must not know what the rows are for.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
LATEST = "(SELECT CASE WHEN at > ? THEN at ELSE ? END FROM clock)"  # of `now`, given twice, and what is written down


Row = tuple[Any, ...]  # as a statement names its columns


class Rows(Protocol):
    """What can be asked, and not written to."""

    def rows(self, sql: str, *values: object) -> list[Row]: ...


class Store(Rows, Protocol):
    """Thread safe: one writes at a time, of all threads, processes and machines, and others read without waiting.

    What a transaction wrote is read in its own thread at once; elsewhere after it. A transaction that has returned is
    lasting. All raise VaultError where the database is damaged, gone or in the way.
    """

    reading: str  # what stands between "INSERT OR REPLACE INTO readings" and what is in the row, to be followed by ")"

    @property
    def in_transaction(self) -> bool:
        """In this thread."""

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile."""

    def transaction(self, lasting: bool = True) -> AbstractContextManager[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part.

        lasting: False for what nobody is told of: it is lasting with the next lasting transaction.
        """

    def indivisible(self) -> AbstractContextManager[None]:
        """Within a transaction: writes of which none may be missing; what fails in here takes the whole along."""

    def alone(self, leaving: bool = False) -> AbstractContextManager[bool]:
        """False if somebody on another machine has it open; nobody there can open or leave it within the block.

        leaving: it is given up with the block.
        """

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""

    def define(self, statement: str) -> None:
        """Within a transaction: make a table or an index, as a statement of SQLite's says."""

    def floats(self, vector: npt.NDArray[np.float32]) -> object:
        """A vector as a value to write; it is read as its little-endian bytes."""

    def now(self) -> datetime:
        """The time: never before one that was told here; within a transaction, after all that was written anywhere."""

    def heard(self, at: str) -> None:
        """A time that was read from `clock`: none before it is told here any more."""

    def stamp(self) -> str:
        """Within a transaction: the time as it is kept, after all that was kept before it."""

    def sizes(self) -> dict[str, int]:
        """How many bytes it takes, by place; first that of texts."""

    def journals(self) -> dict[str, int]:
        """How many bytes its logs take, by place; of a server, they are its own."""

    def shrink(self) -> None:
        """Give back the memory of what was read or written before, and is read again when it is needed."""

    def vacuum(self) -> bool:
        """Leave nothing of a deleted text where rows lie; False while somebody is in the way."""

    def clear_logs(self) -> bool:
        """Leave nothing in the logs that are its own; False while somebody is in the way."""

    def compact(self) -> None:
        """Give the space of what was deleted back to the disk."""

    def close(self) -> None: ...


class Table:
    """Rows of one kind."""

    def __init__(self, db: Store) -> None:
        self._db = db
