"""Who and what memories speak of, and how far apart two are: entities are joined by the facts that name both.

Kept from the facts of the rows, so that it is whole again whenever the vault has been read. Knows no ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from memos.cube import Fact

Rows = npt.NDArray[np.int64]
_HUB = 64  # rows from which an entity says nothing of what belongs together: it is named everywhere


class EntityGraph:
    """Rows and the entities that their facts name; names in any case are the same."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}  # of each entity
        self._entities: dict[int, tuple[str, ...]] = {}  # of each row that has facts

    def add(self, row: int, facts: Iterable[Fact]) -> None:
        named = tuple(dict.fromkeys(name.casefold() for fact in facts for name in (fact.subject, fact.object) if name))
        if named:
            self._entities[row] = named
            for name in named:
                self._rows.setdefault(name, []).append(row)

    def linked(self, names: Sequence[str], hops: int, allowed: npt.NDArray[np.bool_]) -> dict[int, int]:
        """The allowed rows that are at most `hops` facts away from these names, each with its number of facts: 1 for
        a row that names one of them. What is not allowed leads nowhere."""
        found: dict[int, int] = {}
        reached, ahead = set[str](), {name.casefold() for name in names}
        for hop in range(1, hops + 1):
            rows = {row for name in ahead for row in self._few(name, allowed) if row not in found}
            found |= dict.fromkeys(rows, hop)
            reached |= ahead
            ahead = {name for row in rows for name in self._entities[row]} - reached
        return found

    def _few(self, name: str, allowed: npt.NDArray[np.bool_]) -> list[int]:
        rows = np.array(self._rows.get(name, ()), np.int64)
        rows = rows[allowed[rows]]
        return rows.tolist() if len(rows) <= _HUB else []
