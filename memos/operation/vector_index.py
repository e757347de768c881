"""Exact nearest vectors among those allowed. The only file that knows faiss; knows no texts, no cubes and no rights."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

import faiss
import numpy as np


class VectorIndex:
    """Ids with one vector each, searched by inner product. Grows and shrinks in place; thread safe."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._lock = threading.RLock()  # faiss must not be searched while it changes
        self._index = faiss.IndexIDMap(faiss.IndexFlatIP(dim))
        self._rows: dict[str, int] = {}  # id -> faiss's number for it
        self._ids: dict[int, str] = {}
        self._next = 0  # numbers are never used twice, so a removed vector cannot come back under another id

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def add(self, ids: Sequence[str], vectors: np.ndarray) -> None:
        """vectors: [len(ids), dim]. An id that is there already gets the new vector; of an id given twice, the last."""
        if vectors.shape != (len(ids), self._dim):
            raise ValueError(f"{len(ids)} ids need vectors of shape {(len(ids), self._dim)}, not {vectors.shape}")
        last = {id: i for i, id in enumerate(ids)}
        if not last:
            return
        with self._lock:
            self.remove(last)
            rows = np.arange(self._next, self._next + len(last), dtype=np.int64)
            self._next += len(last)
            self._index.add_with_ids(np.ascontiguousarray(vectors[list(last.values())], dtype=np.float32), rows)
            for id, row in zip(last, rows.tolist(), strict=True):
                self._rows[id], self._ids[row] = row, id

    def remove(self, ids: Iterable[str]) -> None:
        """Ids that are not there are passed over."""
        with self._lock:
            rows = [self._rows.pop(id) for id in set(ids) if id in self._rows]
            if rows:
                self._index.remove_ids(_selector(rows))
            for row in rows:
                del self._ids[row]

    def search(self, vector: np.ndarray, k: int, allowed: Collection[str] | None = None) -> list[tuple[str, float]]:
        """The k best (id, inner product) among `allowed` (None: all), best first.

        faiss skips what is not allowed while it scans, so that it never takes one of the k places.
        """
        with self._lock:
            rows = list(self._ids) if allowed is None else [self._rows[id] for id in set(allowed) if id in self._rows]
            k = min(k, len(rows))
            if k < 1:
                return []
            params = faiss.SearchParameters()
            only = _selector(rows)  # a name of its own: faiss may keep no more than a pointer to it
            if allowed is not None:
                params.sel = only
            query = np.ascontiguousarray(vector, dtype=np.float32).reshape(1, self._dim)
            scores, found = self._index.search(query, k, params=params)
            hits = [(self._ids[row], float(score)) for row, score in zip(found[0].tolist(), scores[0], strict=True)]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))  # equal scores: by id, whatever the order of adding


def _selector(rows: list[int]) -> faiss.IDSelectorBatch:
    return faiss.IDSelectorBatch(np.array(rows, dtype=np.int64))
