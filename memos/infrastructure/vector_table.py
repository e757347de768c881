"""A vector for each current version of a text and each embedder, with what was around it.

Must not know how vectors are made or compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memos.errors import InputError
from memos.infrastructure.database import IN, Database

Vectors = npt.NDArray[np.float32]
Coarse = npt.NDArray[np.int8]


@dataclass(frozen=True)
class VectorRow:
    """What an embedder read in a version of a text.

    around: "id:version id:version" of what else it was made of. vector: [width]. tokens: [tokens, width] int8.
    """

    id: str
    version: int
    around: str
    vector: Vectors
    tokens: Coarse


class VectorTable:
    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, embedder: str, rows: Iterable[VectorRow]) -> None:
        """Keep these; one of a version that is no longer current, or around a memory that was deleted since, is passed
        over.

        Raises InputError for a vector of another length than the embedder's others.
        """
        with self._db.transaction():
            lengths = self._db.rows("SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", embedder)
            width = lengths[0][0] // 4 if lengths else None
            for row in rows:
                width = row.vector.size if width is None else width
                if row.vector.shape != (width,) or row.tokens.shape[1:] != (width,):
                    raise InputError(
                        f"the vectors of cube {row.id} have shapes {row.vector.shape} and {row.tokens.shape}, those of "
                        f"{embedder} have width {width}; name each embedder by what it is"
                    )
                others = json.dumps([name.split(":")[0] for name in row.around.split()])
                self._db.write(
                    """INSERT OR REPLACE INTO vectors (id, version, embedder, vector, around, tokens)
                       SELECT id, version, ?, ?, ?, ? FROM heads WHERE id = ? AND version = ? AND NOT EXISTS (
                         SELECT 1 FROM json_each(?) e WHERE e.value NOT IN (SELECT id FROM heads))""",
                    *(embedder, row.vector.astype("<f4").tobytes(), row.around, row.tokens.astype("i1").tobytes()),
                    *(row.id, row.version, others),
                )

    def of(self, embedder: str, ids: Iterable[str]) -> dict[str, tuple[int, str, Vectors]]:
        """(version, around, vector) of each of `ids` that has one."""
        sql = f"SELECT id, version, around, vector FROM vectors WHERE embedder = ? AND id {IN}"
        rows = self._db.rows(sql, embedder, json.dumps(list(ids)))
        return {id: (version, around, np.frombuffer(vector, "<f4")) for id, version, around, vector in rows}

    def tokens(self, embedder: str, ids: Iterable[str]) -> dict[str, Coarse]:
        """[tokens, width] of each of `ids` that has them."""
        sql = f"SELECT id, length(vector) / 4, tokens FROM vectors WHERE embedder = ? AND id {IN}"
        rows = self._db.rows(sql, embedder, json.dumps(list(ids)))
        return {id: np.frombuffer(tokens, "i1").reshape(-1, width) for id, width, tokens in rows}

    def forget_around(self, ids: Iterable[str]) -> None:
        """Within a transaction: remove the vectors that were made of these, too."""
        for id in ids:
            self._db.write("DELETE FROM vectors WHERE around != '' AND instr(around, ?)", f"{id}:")
