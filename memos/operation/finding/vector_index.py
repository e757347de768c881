"""Finds the nearest vectors among the allowed rows; the only file that knows faiss.

Exact where looking at every allowed row is quick enough on this machine, which is measured; above that a graph (HNSW)
proposes rows, and they are compared exactly.
"""

from __future__ import annotations

import logging
import threading
import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.operation.finding.columns import Column, Floats, Mask, Parts, Rows

GRAPH_LINKS, BUILD_ROWS, SEARCH_ROWS = 32, 80, 96  # neighbours of a node; rows looked at when adding, when searching
EXACT_ROWS = 1024  # so few are always compared one by one
EXACT_SHARE = 0.1  # and such a share of all
MAX_STALE_SHARE = 0.1  # of its nodes, with which a graph is stored
COPIED_ROWS = 1 << 16  # at once
ADDED_ROWS = 2048  # to a graph at once, in some tenths of a second
MAX_TOKEN_BYTES = 1 << 23  # held, of some 2,000 memories of a sentence; a token of 384 numbers takes 388
ONE_THREAD_PRODUCTS = 1 << 18  # multiplications, of a product of matrices: OpenBLAS shares out what is larger
Coarse = npt.NDArray[np.int8]
ReadRows = Callable[[Sequence[int]], Mapping[int, Coarse]]
log = logging.getLogger("memos")


@cache
def _faiss() -> Any:  # its stubs do not know what its Python layer adds
    """Imported with the first graph, as it takes 0.3 s and few rows need none."""
    import faiss

    return faiss


class VectorIndex:
    """A unit vector for each row, compared by inner product."""

    def __init__(self, dim: int, exact_ms: float) -> None:
        """exact_ms: rows are compared one by one where that takes no longer."""
        self._dim, self._exact_ms = dim, exact_ms
        self._vectors = Column(np.float32, dim)
        self._graph: Any = None
        self._building: Future[tuple[Any, int]] | None = None
        self._since: list[int] = []  # rows that got a vector since the building began
        self._worth_building = 0  # rows
        self._row_of, self._holds = Column(np.int64), Column(np.bool_)  # of each node: its row, and if it is its last
        self._node_of = Column(np.int64)  # of each row, its last node or -1
        self._selected: tuple[Mask, npt.NDArray[np.uint8]] | None = None  # rows, as nodes
        self._row_ms: float | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def append(self, vector: Floats) -> None:
        """vector: [dim], of the next row; 0 as long as there is none, and then it is in no graph."""
        self._vectors.append(vector)
        self._node_of.append(-1)
        if vector.any():
            self._into_graph(len(self._vectors) - 1)

    def replace(self, row: int, vector: Floats) -> None:
        self._vectors.all[row] = vector
        self._into_graph(row)

    def _into_graph(self, row: int) -> None:
        if self._graph is not None:
            self._graph.add(self._vectors.all[row : row + 1])
            self._selected = None
            if self._node_of.all[row] >= 0:
                self._holds.all[self._node_of.all[row]] = False
            self._node_of.all[row] = len(self._row_of)
            self._row_of.append(row)
            self._holds.append(True)
            if len(self._row_of) > 2 * len(self._vectors):  # more nodes that hold no longer than others
                self._graph = None
        elif self._building is not None:
            self._since.append(row)

    def at(self, rows: Sequence[int] | Rows) -> Floats:
        """[rows, dim], a copy."""
        return self._vectors.all[np.asarray(rows, np.int64)]

    def compare(self, query: Floats, rows: Rows) -> Floats:
        """[rows]: inner product of `query` with each."""
        return self._vectors.all[rows] @ query

    def nearest(self, query: Floats, k: int, allowed: Mask) -> Rows:
        """The k allowed rows nearest to `query`, best first; all of them where there are fewer. allowed: [rows]."""
        count = int(np.count_nonzero(allowed))
        # where few are allowed, a graph leads mostly to others
        few = count < EXACT_SHARE * len(self._vectors) or self._is_quick(count)
        if count > k and not few and self._has_graph():
            near = self._propose(query, 2 * k, allowed, count)
            if len(near) >= k:
                return near[_best(self.compare(query, near), k)]
        rows = np.flatnonzero(allowed)
        return rows[_best(self._scan(query, rows), k)] if count > k else rows

    def _scan(self, query: Floats, rows: Rows) -> Floats:
        """Gathering rows costs more than multiplying them, so that where most are allowed all are multiplied."""
        if 2 * len(rows) < len(self._vectors):
            return self.compare(query, rows)
        return (self._vectors.all @ query)[rows]

    def _is_quick(self, rows: int) -> bool:
        if rows <= EXACT_ROWS:
            return True
        if self._row_ms is None:
            sample, query = np.arange(EXACT_ROWS), np.ones(self._dim, np.float32)
            times = timeit.repeat(partial(self.compare, query, sample), number=1, repeat=5)
            self._row_ms = min(times) * 1e3 / EXACT_ROWS
        return rows * self._row_ms <= self._exact_ms

    def _propose(self, query: Floats, k: int, allowed: Mask, count: int) -> Rows:
        if self._selected is None or self._selected[0] is not allowed:
            nodes = allowed[self._row_of.all] & self._holds.all
            self._selected = allowed, np.packbits(nodes, bitorder="little")
        # a name of its own: faiss keeps no more than a pointer to it
        only = _faiss().IDSelectorBitmap(self._selected[1])
        # the fewer are allowed, the more it takes
        looked_at = int(max(SEARCH_ROWS, k) / max(EXACT_SHARE, count / len(allowed)))
        params = _faiss().SearchParametersHNSW(efSearch=looked_at, sel=only)
        _, found = self._graph.search(query.reshape(1, -1), k, params=params)
        return self._row_of.all[found[0][found[0] >= 0]]

    def _has_graph(self) -> bool:
        """The graph is built in the background, about a tenth of a millisecond for each row; until then rows are
        compared one by one, and so they are where there is no memory for it."""
        if self._graph is None and self._building is None and len(self._vectors) >= self._worth_building:
            self._building, self._since = Future(), []
            work = partial(_build, self._building, self._vectors.all)
            threading.Thread(target=work, name="memos-graph").start()
        if self._building is not None and self._building.done():
            built, self._building = self._building, None
            if error := built.exception():
                log.warning("no graph over %d vectors (%s); they are compared one by one", len(self._vectors), error)
                self._worth_building = 2 * len(self._vectors)
            else:
                (self._graph, rows), self._selected = built.result(), None
                self._row_of, self._holds = Column.of(np.arange(rows)), Column.of(np.ones(rows, bool))
                self._node_of.all[:] = -1
                self._node_of.all[:rows] = np.arange(rows)
                for row in self._since:
                    self._into_graph(row)
        return self._graph is not None

    def packed(self, rows: Rows, place: Rows) -> Parts:
        """With the graph, where there is one and few of its nodes stand for nothing any more.

        rows: those that are kept; place: [rows], where each moves to, or -1.
        """
        parts: Parts = {"vectors": self._vectors.all if len(rows) == len(self._vectors) else self._vectors.all[rows]}
        if self._graph is not None:
            row_of = place[self._row_of.all]
            holds = self._holds.all & (row_of >= 0)
            if holds.mean() >= 1 - MAX_STALE_SHARE:
                links = _faiss().serialize_index(self._graph, _faiss().IO_FLAG_SKIP_STORAGE)
                parts |= {"links": links, "row_of": row_of, "holds": holds}
        return parts

    @classmethod
    def unpacked(cls, parts: Parts, exact_ms: float) -> VectorIndex:
        vectors = parts["vectors"]
        index = cls(vectors.shape[1], exact_ms)
        index._vectors, index._node_of = Column.of(vectors), Column.of(np.full(len(vectors), -1))
        if "links" in parts:
            index._graph = _faiss().deserialize_index(parts["links"])
            # what stood for a row that is gone is nowhere; an earlier vector of a row is taken to be where it is now
            flat = _faiss().IndexFlat(vectors.shape[1], _faiss().METRIC_INNER_PRODUCT)
            row_of, holds = parts["row_of"], parts["holds"]
            for first in range(0, len(row_of), COPIED_ROWS):
                of = row_of[first : first + COPIED_ROWS]
                piece = vectors[of]
                piece[of < 0] = 0
                flat.add(piece)
            index._graph.storage, index._graph.own_fields = flat, True
            flat.this.disown()  # the graph's from here on
            index._row_of, index._holds = Column.of(row_of), Column.of(holds)
            index._node_of.all[row_of[holds]] = np.flatnonzero(holds)
        return index

    def settle(self) -> None:
        """Wait for a graph that is being built."""
        building = self._building
        if building is not None:
            building.exception()


def _build(done: Future[tuple[Any, int]], vectors: Floats) -> None:
    """In pieces, so that a program that ends waits for one of them: one that it left would bring it down."""
    try:
        faiss = _faiss()
        graph = faiss.IndexHNSWFlat(vectors.shape[1], GRAPH_LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = BUILD_ROWS
        for first in range(0, len(vectors), ADDED_ROWS):
            if not threading.main_thread().is_alive():
                raise InterruptedError("the program ends")
            graph.add(vectors[first : first + ADDED_ROWS])
        done.set_result((graph, len(vectors)))
    except BaseException as error:  # whatever it was: searches do without, and tell
        done.set_exception(error)


def _best(scores: Floats, k: int) -> npt.NDArray[np.int64]:
    """Places of the k highest, highest first; equal ones in the order of rows."""
    top = np.argpartition(-scores, k - 1)[:k] if len(scores) > k else np.arange(len(scores))
    return top[np.lexsort((top, -scores[top]))]


# -- tokens of memories beside those of a query: late interaction (Khattab and Zaharia 2020, ColBERT) ------------------


class TokenIndex:
    """Token vectors of the rows that were compared last, over the states of the embedder that finds; all lie in the
    vault.

    They are held as the bytes that they are stored as, since from memory a quarter as much comes sooner than numbers
    that can be multiplied would, and is turned into those piece by piece.
    """

    def __init__(self, dim: int, read: ReadRows, max_bytes: int = MAX_TOKEN_BYTES) -> None:
        """read: rows -> the tokens of each that has any, [tokens, dim]. max_bytes: held at most, beside those of the
        last comparison."""
        self._dim, self._read, self._max_bytes = dim, read, max_bytes
        self._held: dict[int, tuple[Coarse, Floats]] = {}  # with their lengths; the one compared last is the last
        self._bytes = 0

    def drop(self, row: int) -> None:
        """Its tokens are no longer what they were."""
        if row in self._held:
            self._bytes -= _size(self._held.pop(row))

    def of(self, rows: Sequence[int]) -> list[tuple[Coarse, Floats]]:
        """Of each row its tokens and their lengths; where there are none, one of length 0."""
        if missing := [row for row in rows if row not in self._held]:
            read, none = self._read(missing), np.zeros((1, self._dim), np.int8)
            for row in missing:
                tokens = read[row] if len(read.get(row, ())) else none
                self._held[row] = tokens, lengths_of(tokens)
                self._bytes += _size(self._held[row])
        for row in rows:
            self._held[row] = self._held.pop(row)
        found = [self._held[row] for row in rows]
        while self._bytes > self._max_bytes:
            self.drop(next(iter(self._held)))
        return found


def compare_tokens(query: Coarse, rows: Sequence[tuple[Coarse, Floats]]) -> Floats:
    """[rows]: mean over the query's tokens of the cosine with the nearest token of each row, at least 0. rows: see
    `TokenIndex.of`."""
    if not len(query) or not rows:  # of characters that the embedder does not read
        return np.zeros(len(rows), np.float32)
    tokens, lengths = zip(*rows, strict=True)
    cosines = _products(np.concatenate(tokens), query.astype(np.float32) / lengths_of(query)[:, None])
    cosines /= np.concatenate(lengths)[:, None]
    starts = np.cumsum([0, *map(len, tokens[:-1])])
    return np.maximum(np.maximum.reduceat(cosines, starts, axis=0), 0).mean(1)


def _size(tokens: tuple[Coarse, Floats]) -> int:
    return tokens[0].nbytes + tokens[1].nbytes


def lengths_of(tokens: Coarse) -> Floats:
    """[tokens], at least so much that it can be divided by."""
    fine = tokens.astype(np.float32)
    return np.maximum(np.sqrt(np.einsum("ij,ij->i", fine, fine)), 1e-9)


def _products(every: Coarse, query: Floats) -> Floats:
    """[rows of every, rows of the query].

    In pieces so small that BLAS multiplies them in one thread: where the embedder has just read the query, its threads
    still hold the other cores, and to wait for them took six times as long (measured on 2 cores). As numbers that BLAS
    multiplies, a piece is no longer than the processor's cache is.
    """
    rows = max(1, ONE_THREAD_PRODUCTS // query.size)
    fine = np.empty((rows, query.shape[1]), np.float32)
    found = np.empty((len(every), len(query)), np.float32)
    for start in range(0, len(every), rows):
        part = found[start : start + rows]
        np.copyto(fine[: len(part)], every[start : start + rows])
        np.dot(fine[: len(part)], query.T, out=part)
    return found
