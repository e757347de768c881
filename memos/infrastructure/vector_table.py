"""A vector for each current version of a text and each embedder. Must not know how vectors are made or compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.errors import InputError
from memos.infrastructure.database import Database

Vectors = npt.NDArray[np.float32]


class VectorTable:
    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, embedder: str, rows: Iterable[tuple[str, int, npt.NDArray[Any]]]) -> None:
        """Keep a vector for each (id, version, vector); one of a version that is no longer current is passed over.

        Raises InputError for a vector of another length than the embedder's others.
        """
        with self._db.transaction():
            lengths = self._db.rows("SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", embedder)
            width = lengths[0][0] // 4 if lengths else None
            for id, version, vector in rows:
                width = vector.size if width is None else width
                if vector.shape != (width,):
                    raise InputError(
                        f"the vector of cube {id} has shape {vector.shape}, those of {embedder} have ({width},); "
                        "name each embedder by what it is"
                    )
                self._db.write(
                    "INSERT OR REPLACE INTO vectors SELECT id, version, ?, ? FROM heads WHERE id = ? AND version = ?",
                    *(embedder, vector.astype("<f4").tobytes(), id, version),
                )

    def of(self, embedder: str) -> tuple[list[str], Vectors]:
        """Ids, and their vectors as [ids, width], of current versions; [0, 0] when there are none."""
        rows = self._db.rows("SELECT id, vector FROM vectors WHERE embedder = ? ORDER BY id", embedder)
        if not rows:
            return [], np.zeros((0, 0), np.float32)
        flat = np.frombuffer(b"".join(vector for _, vector in rows), "<f4").astype(np.float32)
        return [id for id, _ in rows], flat.reshape(len(rows), -1)
