"""Finds memories by meaning: keeps a vector for each text and ranks them. Knows no rights, states or budgets.

Who may see what arrives as `allowed`, and only those are ranked. Vectors are kept in the vault under the embedder's
name, so that a restart embeds nothing; another embedder has another name, and its vectors are made beside the old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import numpy as np

from memos.cube import MemCube
from memos.errors import InputError
from memos.infrastructure.mem_vault import MemVault
from memos.operation.vector_index import VectorIndex


class TextEmbedder(Protocol):
    """Texts -> unit vectors. `name` changes whenever the vectors would."""

    name: str
    dim: int

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


class MemOperator:
    """The index over the vault's texts."""

    def __init__(self, vault: MemVault, embedder: TextEmbedder) -> None:
        self._vault, self._embedder = vault, embedder
        self._index = VectorIndex(embedder.dim)
        self._versions: dict[str, int] = {}  # of the cubes indexed since the start; the vault does not tell of earlier
        ids, vectors = vault.vectors(embedder.name)
        if ids:
            self._index.add(ids, vectors)

    def index(self, cubes: Sequence[MemCube]) -> None:
        """Make these cubes findable, each instead of its earlier version. Embeds only what has no vector yet.

        The cubes must be in the vault already, their transaction landed: an index cannot be rolled back.
        A cube without text has nothing to be found by.
        """
        self.remove(cube.id for cube in cubes if not cube.text)
        missing = self._missing(cubes)
        if not missing:
            return
        vectors = self._embedder.embed([cube.text for cube in missing])
        rows = zip(missing, vectors, strict=True)
        self._vault.put_vectors(self._embedder.name, ((cube.id, cube.version, vector) for cube, vector in rows))
        self._index.add([cube.id for cube in missing], vectors)
        self._versions |= {cube.id: cube.version for cube in missing}

    def remove(self, ids: Iterable[str]) -> None:
        """Forget these; their stored vectors go with the vault's own `delete`."""
        ids = list(ids)
        self._index.remove(ids)
        for id in ids:
            self._versions.pop(id, None)

    def search(self, query: str, k: int, allowed: Collection[str]) -> list[tuple[str, float]]:
        """The k of `allowed` that are nearest to `query`, as (id, cosine), best first. Raises InputError."""
        if not query.strip():
            raise InputError("the query is empty, and a search needs words to compare; say what to look for")
        if k < 1 or not allowed:
            return []
        return self._index.search(self._embedder.embed([query])[0], k, allowed)

    def _missing(self, cubes: Sequence[MemCube]) -> list[MemCube]:
        """Those with text that have no vector of this version; of a cube given twice, its later version."""
        newest = {cube.id: cube for cube in sorted(cubes, key=lambda cube: cube.version) if cube.text}
        unsure = [cube for cube in newest.values() if cube.id in self._index and cube.id not in self._versions]
        if unsure:  # loaded at the start; the vault has dropped its vector if the cube was edited since
            stored = set(self._vault.vectors(self._embedder.name)[0])
            self._versions |= {cube.id: cube.version for cube in unsure if cube.id in stored}
        return [cube for cube in newest.values() if cube.version > self._versions.get(cube.id, 0)]
