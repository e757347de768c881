"""Tokens of memories beside those of a query: late interaction (Khattab and Zaharia 2020, ColBERT), over the states of
the embedder that finds.

The tokens lie in the vault; of the rows that were compared last they are held here, as unit vectors, so that a search
among the same memories neither reads nor scales them again. Knows rows, and nothing of what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memos.operation.policies.policy import Floats

_HELD = 1 << 26  # bytes; a token of 384 numbers takes 1.5 KiB
_ONE_THREAD = 1 << 18  # multiplications, of a product of matrices: OpenBLAS shares out what is larger
Read = Callable[[Sequence[int]], Mapping[int, npt.NDArray[np.int8]]]


class TokenIndex:
    def __init__(self, dim: int, read: Read, held: int = _HELD) -> None:
        """read: rows -> the tokens of each that has any, [tokens, dim]. held: bytes that are held at most, beside those
        of the last comparison."""
        self._dim, self._read, self._most = dim, read, held
        self._held: dict[int, Floats] = {}  # the one compared last is the last
        self._bytes = 0

    def drop(self, row: int) -> None:
        """Its tokens are no longer what they were."""
        if row in self._held:
            self._bytes -= self._held.pop(row).nbytes

    def compare(self, query: npt.NDArray[np.int8], rows: Sequence[int]) -> Floats:
        """[rows]: mean over the query's tokens of the cosine with the nearest token of each row, at least 0."""
        if not len(query):  # of characters that the embedder does not read
            return np.zeros(len(rows), np.float32)
        tokens = self._of(rows)
        starts = np.cumsum([0, *map(len, tokens[:-1])])
        found: Floats = np.maximum.reduceat(_products(np.concatenate(tokens), _unit(query)), starts, axis=0).mean(1)
        return found

    def _of(self, rows: Sequence[int]) -> list[Floats]:
        """Of each row its tokens as unit vectors, and one of length 0 beside them: the least that there is."""
        read = self._read(missing) if (missing := [row for row in rows if row not in self._held]) else {}
        found = []
        for row in rows:
            tokens = self._held.pop(row, None)
            if tokens is None:
                made = _unit(read.get(row, np.zeros((0, self._dim), np.int8)))
                tokens = np.concatenate([made, np.zeros((1, self._dim), np.float32)])
                self._bytes += tokens.nbytes
            found.append(tokens)
            self._held[row] = tokens
        while self._bytes > self._most and self._held:
            self.drop(next(iter(self._held)))
        return found


def _unit(tokens: npt.NDArray[np.int8]) -> Floats:
    fine = tokens.astype(np.float32)
    return fine / np.maximum(np.sqrt(np.einsum("ij,ij->i", fine, fine)), 1e-9)[:, None]


def _products(every: Floats, query: Floats) -> Floats:
    """[rows of every, rows of the query].

    In pieces so small that BLAS multiplies them in one thread: where the embedder has just read the query, its threads
    still hold the other cores, and to wait for them took six times as long (measured on 2 cores).
    """
    wanted = query.T
    rows = max(1, _ONE_THREAD // wanted.size)
    return np.concatenate([every[start : start + rows] @ wanted for start in range(0, len(every), rows)])
