"""Tokens of memories beside those of a query: late interaction (Khattab and Zaharia 2020, ColBERT), over the states of
the embedder that finds.

The tokens lie in the vault; of the rows that were compared last they are held here, so that a search among the same
memories does not read them again: as the bytes that they are kept as, since from memory a quarter as much comes sooner
than numbers that can be multiplied would, and is turned into those piece by piece. Knows rows, and nothing of what they
say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memos.operation.policies.policy import Floats

_HELD = 1 << 23  # bytes, of some 2,000 memories of a sentence; a token of 384 numbers takes 388
_ONE_THREAD = 1 << 18  # multiplications, of a product of matrices: OpenBLAS shares out what is larger
Coarse = npt.NDArray[np.int8]
Read = Callable[[Sequence[int]], Mapping[int, Coarse]]


class TokenIndex:
    def __init__(self, dim: int, read: Read, held: int = _HELD) -> None:
        """read: rows -> the tokens of each that has any, [tokens, dim]. held: bytes that are held at most, beside those
        of the last comparison."""
        self._dim, self._read, self._most = dim, read, held
        self._held: dict[int, tuple[Coarse, Floats]] = {}  # with their lengths; the one compared last is the last
        self._bytes = 0

    def drop(self, row: int) -> None:
        """Its tokens are no longer what they were."""
        if row in self._held:
            self._bytes -= _size(self._held.pop(row))

    def compare(self, query: Coarse, rows: Sequence[int]) -> Floats:
        """[rows]: mean over the query's tokens of the cosine with the nearest token of each row, at least 0."""
        if not len(query):  # of characters that the embedder does not read
            return np.zeros(len(rows), np.float32)
        tokens, lengths = zip(*self._of(rows), strict=True)
        cosines = _products(np.concatenate(tokens), query.astype(np.float32) / _lengths(query)[:, None])
        cosines /= np.concatenate(lengths)[:, None]
        starts = np.cumsum([0, *map(len, tokens[:-1])])
        found: Floats = np.maximum(np.maximum.reduceat(cosines, starts, axis=0), 0).mean(1)
        return found

    def _of(self, rows: Sequence[int]) -> list[tuple[Coarse, Floats]]:
        """Of each row its tokens and their lengths; where there are none, one of length 0."""
        if missing := [row for row in rows if row not in self._held]:
            read, none = self._read(missing), np.zeros((1, self._dim), np.int8)
            for row in missing:
                tokens = read[row] if len(read.get(row, ())) else none
                self._held[row] = tokens, _lengths(tokens)
                self._bytes += _size(self._held[row])
        for row in rows:
            self._held[row] = self._held.pop(row)
        found = [self._held[row] for row in rows]
        while self._bytes > self._most:
            self.drop(next(iter(self._held)))
        return found


def _size(held: tuple[Coarse, Floats]) -> int:
    return held[0].nbytes + held[1].nbytes


def _lengths(tokens: Coarse) -> Floats:
    """[tokens], at least so much that it can be divided by."""
    fine = tokens.astype(np.float32)
    found: Floats = np.maximum(np.sqrt(np.einsum("ij,ij->i", fine, fine)), 1e-9)
    return found


def _products(every: Coarse, query: Floats) -> Floats:
    """[rows of every, rows of the query].

    In pieces so small that BLAS multiplies them in one thread: where the embedder has just read the query, its threads
    still hold the other cores, and to wait for them took six times as long (measured on 2 cores). As numbers that BLAS
    multiplies, a piece is no longer than the processor's cache is.
    """
    rows = max(1, _ONE_THREAD // query.size)
    fine = np.empty((rows, query.shape[1]), np.float32)
    found = np.empty((len(every), len(query)), np.float32)
    for start in range(0, len(every), rows):
        part = found[start : start + rows]
        np.copyto(fine[: len(part)], every[start : start + rows])
        np.dot(fine[: len(part)], query.T, out=part)
    return found
