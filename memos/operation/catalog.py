"""One row for each memory that can be found, with what a search filters and ranks by; every index counts in these rows.

Knows threads, speakers and times; knows no ranking and no rights: who may see what arrives as a `View`, and is asked
once for each sort of memory, not for each memory.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.cube import MemCube, Namespace, Rights
from memos.operation.column import Column
from memos.operation.words import asks

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
AROUND = 2  # turns before and after one that belong to its context
_GROUP, _NEAR = 512, 32  # rows of the largest group that is told whole; else how many on either side
_VIEWS = 256  # callers whose verdicts are remembered


@dataclass(frozen=True)
class View:
    """What a search may look at.

    key: stands for `may`, so that its verdicts can be remembered. since, until: by when it was said. kinds: None for
    all.
    """

    key: Hashable
    may: Callable[[Namespace, Rights], bool] = field(compare=False)
    kinds: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


class Codes:
    """Values -> small numbers, in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._code: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        if value not in self._code:
            self._code[value] = len(self.values)
            self.values.append(value)
        return self._code[value]

    def find(self, value: Hashable) -> int:
        """-1 where it was never used."""
        return self._code.get(value, -1)


class Catalog:
    """Rows are added and marked as gone, never moved; `gone` tells when it is time to build a new catalog."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.scopes, self.kinds, self.speakers, self.subjects = Codes(), Codes(), Codes(), Codes()
        self._row: dict[str, int] = {}
        self._version: dict[str, int] = {}
        self._alive, self._asks = Column(bool), Column(bool)
        self._scope, self._kind, self._speaker, self._subject = (Column(np.int32) for _ in range(4))
        self._said = Column(np.float64)
        self._thread, self._before, self._after = (Column(np.int64) for _ in range(3))
        self._threads: dict[Hashable, int] = {}
        self._members: list[list[tuple[tuple[datetime, str], int]]] = []  # of each thread, in order
        self._groups: list[list[int]] = []  # rows of each subject
        self._verdicts: dict[Hashable, list[bool]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: object) -> bool:
        return id in self._row

    @property
    def gone(self) -> int:
        """Rows that stand for nothing any more."""
        return len(self.ids) - len(self._row)

    def row(self, id: str) -> int:
        return self._row[id]

    def version(self, id: str) -> int:
        """0 where it has no row."""
        return self._version.get(id, 0)

    @property
    def living(self) -> tuple[str, ...]:
        """The ids that have a row."""
        return tuple(self._row)

    def lives(self, row: int) -> bool:
        return bool(self._alive.all[row])

    @property
    def asks(self) -> Mask:
        """[rows]: it ends with a question."""
        return self._asks.all

    @property
    def thread(self) -> Rows:
        """[rows]: its conversation; what belongs to none is a thread of its own."""
        return self._thread.all

    @property
    def before(self) -> Rows:
        """[rows]: the row said before it in its thread, or -1."""
        return self._before.all

    @property
    def after(self) -> Rows:
        return self._after.all

    @property
    def said(self) -> npt.NDArray[np.float64]:
        """[rows]: seconds since 1970."""
        return self._said.all

    @property
    def speaker(self) -> npt.NDArray[np.int32]:
        return self._speaker.all

    @property
    def subject(self) -> npt.NDArray[np.int32]:
        """[rows]: its topic group, casefolded."""
        return self._subject.all

    def add(self, cube: MemCube) -> int:
        """A row for this version; the row of an earlier one is gone."""
        self.drop(cube.id)
        row, header = len(self.ids), cube.header
        scope = self.scopes.of((cube.namespace, cube.rights))
        self.ids.append(cube.id)
        self._row[cube.id], self._version[cube.id] = row, cube.version
        self._alive.append(True)
        self._asks.append(asks(cube.text))
        self._scope.append(scope)
        self._kind.append(self.kinds.of(header.kind))
        self._speaker.append(self.speakers.of(header.speaker.casefold()))
        self._subject.append(subject := self.subjects.of(header.segment.casefold()))
        if subject == len(self._groups):
            self._groups.append([])
        self._groups[subject].append(row)
        self._said.append((header.said or header.created).timestamp())
        self._enter(row, (scope, header.thread) if header.thread else None, cube.order)
        return row

    def _enter(self, row: int, thread: Hashable | None, order: tuple[datetime, str]) -> None:
        """Its place among the rows of its thread."""
        code = len(self._members) if thread is None else self._threads.setdefault(thread, len(self._members))
        if code == len(self._members):
            self._members.append([])
        self._thread.append(code)
        self._before.append(-1)
        self._after.append(-1)
        members = self._members[code]
        at = bisect.bisect(members, (order, row))
        members.insert(at, (order, row))
        self._link(members[at - 1][1] if at else -1, row)
        self._link(row, members[at + 1][1] if at + 1 < len(members) else -1)

    def drop(self, id: str) -> None:
        """Its row is gone; an id without one is passed over."""
        row = self._row.pop(id, None)
        if row is None:
            return
        del self._version[id]
        self._alive.all[row] = False
        self._link(int(self.before[row]), int(self.after[row]))
        members = self._members[self.thread[row]]
        members[:] = [(order, other) for order, other in members if other != row]

    def _link(self, row: int, following: int) -> None:
        if row >= 0:
            self._after.all[row] = following
        if following >= 0:
            self._before.all[following] = row

    def around(self, row: int) -> tuple[list[int], list[int]]:
        """The rows before it and after it that belong to its context, nearest first."""
        return self._walk(row, self.before), self._walk(row, self.after)

    def _walk(self, row: int, step: Rows) -> list[int]:
        found: list[int] = []
        while len(found) < AROUND and (row := int(step[row])) >= 0:
            found.append(row)
        return found

    def allowed(self, view: View) -> Mask:
        """[rows]: those that a search may look at."""
        verdicts = self._verdicts.setdefault(view.key, [])
        verdicts += [view.may(*scope) for scope in self.scopes.values[len(verdicts) :]]
        if len(self._verdicts) > _VIEWS:
            del self._verdicts[next(iter(self._verdicts))]
        mask = self._alive.all & np.array(verdicts or [False], bool)[self._scope.all]
        if view.kinds is not None:
            mask &= np.isin(self._kind.all, [self.kinds.find(kind) for kind in view.kinds])
        if view.since is not None:
            mask &= self._said.all >= view.since.timestamp()
        if view.until is not None:
            mask &= self._said.all <= view.until.timestamp()
        return mask

    def named(self, text: str) -> list[int]:
        """The speakers whose names stand in a text."""
        words = re.findall(r"\w+", text.casefold())
        runs = (" ".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1))
        return sorted({code for run in runs if (code := self.speakers.find(run)) >= 0})

    @staticmethod
    def step(rows: Rows, to: Rows) -> Rows:
        """The rows that these lead to; -1 stays -1."""
        return np.where(rows >= 0, to[rows], -1)

    def of_group(self, name: str) -> list[int]:
        """The rows of a topic group, in the order of their adding."""
        code = self.subjects.find(name.casefold())
        return self._groups[code] if code >= 0 else []

    def in_groups(self, rows: Iterable[int]) -> Rows:
        """The rows of the topic groups of these rows; of a group beyond all measure, such as that of memories without
        one, those that were added shortly before and after."""
        found: dict[int, None] = {}
        for row in rows:
            group = self._groups[self.subject[row]]
            if len(group) > _GROUP:
                at = bisect.bisect_left(group, row)
                group = group[max(0, at - _NEAR) : at + _NEAR + 1]
            found |= dict.fromkeys(group)
        return np.array(list(found), np.int64)
