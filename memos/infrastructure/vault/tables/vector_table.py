"""What models have made: a vector for each current version of a text and each embedder, and figures of hosts.

Must not know how vectors are made or compared, nor what the figures mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.errors import InputError
from memos.infrastructure.vault.store.transactions import IN, Table
from memos.infrastructure.vault.tables.cube_table import checksum

Vectors = npt.NDArray[np.float32]
Coarse = npt.NDArray[np.int8]
_ALL = "FROM vectors JOIN readings USING (n)"
# of some: what each has replaced, and what that had replaced before
_OF_REPLACED = f"""WITH RECURSIVE gone (by, id) AS (SELECT by, id FROM superseded WHERE undone IS NULL AND by {IN}
                     UNION SELECT g.by, s.id FROM gone g JOIN superseded s ON s.by = g.id WHERE s.undone IS NULL)
                   SELECT by, vector, tokens {_ALL} JOIN gone USING (id) WHERE embedder = ? AND length(tokens) > 0"""


@dataclass(frozen=True)
class VectorRow:
    """What an embedder read in a version of a text.

    around: "id:version id:version" of what else it was made of, and a name without ":" of rules by which it was masked.
    vector: [width]. tokens: [tokens, width] int8.
    """

    id: str
    version: int
    around: str
    vector: Vectors
    tokens: Coarse


class VectorTable(Table):
    def put(self, embedder: str, rows: Iterable[VectorRow]) -> None:
        """Keep these; one of a version that is no longer current, or around a memory that was deleted since, is passed
        over.

        Raises InputError for a vector of another length than the embedder's others.
        """
        with self._db.transaction():
            lengths = self._db.rows(f"SELECT length(vector) {_ALL} WHERE embedder = ? LIMIT 1", embedder)
            width = lengths[0][0] // 4 if lengths else None
            for row in rows:
                width = row.vector.size if width is None else width
                if row.vector.shape != (width,) or row.tokens.shape[1:] != (width,):
                    raise InputError(
                        f"the vectors of cube {row.id} have shapes {row.vector.shape} and {row.tokens.shape}, those of "
                        f"{embedder} have width {width}; name each embedder by what it is"
                    )
                others = json.dumps([name.split(":")[0] for name in row.around.split() if ":" in name])
                content = row.vector.astype("<f4").tobytes(), row.tokens.astype("i1").tobytes()
                kept = self._db.write(
                    """INSERT OR REPLACE INTO vectors (id, version, embedder, around, digest)
                       SELECT id, version, ?, ?, ? FROM heads WHERE id = ? AND version = ? AND NOT EXISTS (
                         SELECT 1 FROM json_each(?) e WHERE e.value NOT IN (SELECT id FROM heads))""",
                    *(embedder, row.around, checksum(*content), row.id, row.version, others),
                )
                if kept:
                    self._db.write(
                        f"""INSERT OR REPLACE INTO readings {self._db.reading}
                            SELECT n, ? AS vector, ? AS tokens FROM vectors WHERE id = ? AND embedder = ?) AS r""",
                        *(self._db.floats(row.vector), content[1], row.id, embedder),
                    )

    def of(self, embedder: str, ids: Iterable[str]) -> dict[str, tuple[int, str, Vectors]]:
        """(version, around, vector) of each of `ids` that has one."""
        sql = f"SELECT id, version, around, vector {_ALL} WHERE embedder = ? AND id {IN}"
        rows = self._db.rows(sql, embedder, json.dumps(list(ids)))
        return {id: (version, around, np.frombuffer(vector, "<f4")) for id, version, around, vector in rows}

    def tokens(self, embedder: str, ids: Iterable[str]) -> dict[str, Coarse]:
        """[tokens, width] of each of `ids` that has them."""
        sql = f"SELECT id, length(vector) / 4, tokens {_ALL} WHERE embedder = ? AND id {IN}"
        rows = self._db.rows(sql, embedder, json.dumps(list(ids)))
        return {id: np.frombuffer(tokens, "i1").reshape(-1, width) for id, width, tokens in rows}

    def of_replaced(self, embedder: str, by: Iterable[str]) -> list[tuple[str, Vectors, Coarse]]:
        """(the id of one of these, vector and tokens of what it has replaced) for each that was."""
        rows = self._db.rows(_OF_REPLACED, json.dumps(list(by)), embedder)
        read = [(id, np.frombuffer(vector, "<f4"), np.frombuffer(tokens, "i1")) for id, vector, tokens in rows]
        return [(id, vector, tokens.reshape(-1, len(vector))) for id, vector, tokens in read]

    def forget_around(self, ids: Iterable[str]) -> None:
        """Within a transaction: remove the vectors that were made of these, too."""
        for id in ids:
            self._db.write("DELETE FROM vectors WHERE around != '' AND instr(around, ?) > 0", f"{id}:")

    def forget_strays(self) -> None:
        """Within a transaction: remove what a crash between the two files left in the one of vectors."""
        self._db.write("DELETE FROM readings WHERE n IN (SELECT n FROM readings EXCEPT SELECT n FROM vectors)")


Card = dict[str, Any]  # JSON


class CardTable(Table):
    def put(self, host: str, card: Card) -> None:
        """Keep what was measured on the host with this digest, in place of what was."""
        with self._db.transaction():
            self._db.write("DELETE FROM cards WHERE host = ?", host)
            self._db.write("INSERT INTO cards VALUES (?, ?, ?)", host, json.dumps(card), self._db.stamp())

    def of(self, host: str) -> Card | None:
        """What was measured on the host with this digest; None if nothing was."""
        rows = self._db.rows("SELECT json FROM cards WHERE host = ?", host)
        return dict(json.loads(rows[0][0])) if rows else None
