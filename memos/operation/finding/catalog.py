"""One row for each memory that can be found, with what a search filters and ranks by; all indexes use these rows.

Knows threads, speakers and times; knows no ranking and no rights: who may see what arrives as a `View`, and is asked
once for each sort of memory, not for each memory.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from memos.cube import SUMMARY, MemCube, Namespace, Rights, Text
from memos.operation.finding.columns import Column, Mask, Parts, Rows, at, beneath, pack, split, unpack
from memos.operation.policies.policy import asks, standing

AROUND = 2  # rows before and after one whose words count for it
WINDOW_ROWS, MAX_WINDOW_ROWS = 6, 5  # how often, in the mean, a row opens a window; rows read together
MAX_GROUP_ROWS, NEAR_ROWS = 512, 32  # of a group that is given whole; else how many on either side
_COLUMNS = tuple("version asks replies opens standing turn scope kind speaker subject said thread before after".split())
_CODED = ("kind", "speaker", "subject")  # columns of codes, whose values are named so with an s
_NAMELESS = "\0"  # before the name of a topic group that is not shown
MAX_CACHED_VIEWS = 256
PAUSE_S = 600.0  # after which what is said does not go on with what was said before


@dataclass(frozen=True)
class View:
    """What a search may look at.

    key: stands for `may` and `single`, so that their verdicts can be remembered. may: asked once for each sort of
    memory: its namespace, its rights, and the ids of what it was made of; `expect` is given before all of these ids
    altogether. since, until: by when it was said. kinds, among (ids): None for all. summaries: they are looked at
    without being asked for by kind. single: ids of memories that may be seen whatever their sort. owner: who looks;
    words that are masked for all others are compared in this one's own. enough: score that leaves out what is cold.
    """

    key: Hashable
    may: Callable[..., bool] = field(compare=False)
    single: Callable[[], Iterable[str]] = field(default=tuple, compare=False)
    expect: Callable[[Iterable[str]], object] = field(default=tuple, compare=False)
    kinds: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    among: frozenset[str] | None = field(default=None, kw_only=True)
    summaries: bool = field(default=False, kw_only=True)
    enough: float | None = field(default=None, kw_only=True)
    owner: str = field(default="", kw_only=True)


class Codes:
    """Values -> small numbers, in the order of their first use."""

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        self.values: list[Any] = list(values)
        self._code: dict[Hashable, int] = {value: code for code, value in enumerate(self.values)}

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
        self._turns = Codes()
        # of each row
        self.alive = Column(np.bool_)  # it stands for something
        self.version, self.opens = Column(np.int64), Column(np.bool_)  # opens: a window
        self.scope, self.kind = Column(np.int32), Column(np.int32)  # codes
        self.asks = Column(np.bool_)  # it ends with a question
        self.replies = Column(np.bool_)  # an assistant said it
        self.standing = Column(np.float32)  # how far it says how replies are wanted from now on
        self.turn = Column(np.int32)  # that it is, is a part of, or was read in; of what nobody said, one of its own
        self.speaker, self.subject = Column(np.int32), Column(np.int32)  # subject: its topic group, casefolded
        self.said = Column(np.float64)  # seconds since 1970
        self.thread = Column(np.int64)  # its conversation; what belongs to none is a thread of its own
        self.before, self.after = Column(np.int64), Column(np.int64)  # the row said next to it in its thread, or -1
        self._all_threads = 0  # those of one row, which have no name, too
        self._threads: dict[tuple[int, str], int] = {}  # by scope and name
        self._members: dict[int, list[int]] = {}  # the rows of each that has a name, in order
        self._groups: dict[int, list[int]] = {}  # rows of each subject
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

    def version_of(self, id: str) -> int:
        """0 where it has no row."""
        return int(self.version.all[self._row[id]]) if id in self._row else 0

    @property
    def living(self) -> tuple[str, ...]:
        """The ids that have a row."""
        return tuple(self._row)

    @property
    def summaries(self) -> Mask:
        """[rows]: it sums up a part of a conversation."""
        return self.kind.all == self.kinds.find(SUMMARY)

    def add(self, cube: MemCube, shown: MemCube | None = None) -> int:
        """A row for this version; the row of an earlier one is gone. shown: what of it may be told by a search; left
        out, all."""
        self.drop(cube.id)
        row, header, shown = len(self.ids), cube.header, shown or cube
        subject = header.segment if shown.header.segment == header.segment else f"{_NAMELESS}{header.segment}"
        said = isinstance(cube.payload, Text) and bool(cube.payload.verbatim)
        scope = self.scopes.of((cube.namespace, cube.rights, *sorted(source.id for source in cube.rests_on)))
        self.ids.append(cube.id)
        self._row[cube.id] = row
        self.version.append(cube.version)
        self.alive.append(True)
        self.asks.append(asks(shown.text))
        self.opens.append(crc32(shown.words.encode()) % WINDOW_ROWS == 0)
        self.replies.append(is_reply := header.role == "assistant")
        self.standing.append(0.0 if is_reply else standing(shown.words))
        self.turn.append(self._turns.of(cube.sources[0].id if said and cube.sources else cube.id))
        self.scope.append(scope)
        self.kind.append(self.kinds.of(header.kind))
        self.speaker.append(self.speakers.of(shown.header.speaker.casefold()))
        self.subject.append(group := self.subjects.of(subject.casefold()))
        self._groups.setdefault(group, []).append(row)
        self.said.append((header.said or header.created).timestamp())
        self._enter(row, (scope, header.thread) if header.thread else None)
        return row

    def _enter(self, row: int, thread: tuple[int, str] | None) -> None:
        """Its place among the rows of its thread."""
        code = self._all_threads if thread is None else self._threads.setdefault(thread, self._all_threads)
        self._all_threads = max(self._all_threads, code + 1)
        self.thread.append(code)
        self.before.append(-1)
        self.after.append(-1)
        if thread is not None:
            members = self._members.setdefault(code, [])
            at = bisect.bisect(members, self._order(row), key=self._order)
            members.insert(at, row)
            self._link(members[at - 1] if at else -1, row)
            self._link(row, members[at + 1] if at + 1 < len(members) else -1)

    def _order(self, row: int) -> tuple[float, str]:
        """As that of cubes."""
        return float(self.said.all[row]), self.ids[row]

    def drop(self, id: str) -> None:
        """Its row is gone; an id without one is passed over."""
        row = self._row.pop(id, None)
        if row is None:
            return
        self.alive.all[row] = False
        self._link(int(self.before.all[row]), int(self.after.all[row]))
        if members := self._members.get(int(self.thread.all[row])):
            members.remove(row)

    def _link(self, row: int, following: int) -> None:
        if row >= 0:
            self.after.all[row] = following
        if following >= 0:
            self.before.all[following] = row

    def packed(self, rows: Rows, place: Rows) -> Parts:
        """rows: those that live; place: [rows], where each moves to, or -1. What no row uses is left out."""
        as_they_are = ("version", "asks", "replies", "opens", "standing", "said")
        parts = {name: getattr(self, name).all[rows] for name in as_they_are}
        turns, parts["turn"] = _used(self.turn.all[rows])
        parts |= beneath("turns", pack([self._turns.values[code] for code in turns]))
        parts |= {"before": place[self.before.all[rows]], "after": place[self.after.all[rows]]}
        scopes, parts["scope"] = _used(self.scope.all[rows])
        packed_scopes = [
            json.dumps([of.model_dump(), rights.model_dump(), *sources])
            for of, rights, *sources in (self.scopes.values[code] for code in scopes)
        ]
        parts |= beneath("ids", pack([self.ids[row] for row in rows.tolist()])) | beneath("scopes", pack(packed_scopes))
        for name in _CODED:
            used, parts[name] = _used(getattr(self, name).all[rows])
            values = getattr(self, f"{name}s").values
            parts |= beneath(f"{name}s", pack([values[code] for code in used]))
        threads, thread = np.unique(self.thread.all[rows], return_inverse=True)
        named = [(key, code) for key, code in self._threads.items() if self._members[code]]
        members = [self._members[code] for _, code in named]
        new_scope = dict(zip(scopes, range(len(scopes)), strict=True))
        parts |= {
            "thread": thread,
            "threads": np.searchsorted(threads, [code for _, code in named]),
            "threads_scope": np.array([new_scope[scope] for (scope, _), _ in named], np.int64),
            "members": place[[row for rows in members for row in rows]],
            "members_of": np.array([len(rows) for rows in members], np.int64),
        }
        return parts | beneath("threads", pack([name for (_, name), _ in named]))

    @classmethod
    def unpacked(cls, parts: Parts) -> Catalog:
        catalog = cls()
        catalog.ids = unpack(at("ids", parts))
        rows = len(catalog.ids)
        catalog._row = dict(zip(catalog.ids, range(rows), strict=True))
        scopes = [json.loads(scope) for scope in unpack(at("scopes", parts))]
        catalog.scopes = Codes((Namespace(**of), Rights(**rights), *sources) for of, rights, *sources in scopes)
        for name in _CODED:
            setattr(catalog, f"{name}s", Codes(unpack(at(f"{name}s", parts))))
        catalog._turns = Codes(unpack(at("turns", parts)))
        catalog.alive = Column.of(np.ones(rows, bool))
        for name in _COLUMNS:
            setattr(catalog, name, Column.of(parts[name]))
        catalog._all_threads = int(catalog.thread.all.max(initial=-1)) + 1
        codes = parts["threads"].tolist()
        keys = zip(parts["threads_scope"].tolist(), unpack(at("threads", parts)), strict=True)
        catalog._threads = dict(zip(keys, codes, strict=True))
        catalog._members = dict(zip(codes, split(parts["members"], parts["members_of"]), strict=True))
        in_order = np.argsort(catalog.subject.all, kind="stable")
        catalog._groups = dict(enumerate(split(in_order, np.bincount(catalog.subject.all))))
        return catalog

    def window(self, row: int, size: Callable[[int], int], most: int, before: int) -> tuple[list[int], list[int]]:
        """(the rows said before a window, those of the window), in order: those that are read together with a row.

        A thread is cut before every sixth row or so, by its words, and where a window would have too many rows or more
        than `most` characters; so what is added or dropped changes no window but those near it. before: characters of
        the rows before, which belong to the context alone. size: characters of a row.
        """
        members, place = self._in_thread(row)
        start = self._opening(members, place)
        rows = list[int]()
        for n in range(start, len(members)):
            full = len(rows) == MAX_WINDOW_ROWS or (rows and sum(map(size, rows)) + size(members[n]) > most)
            if n > start and (full or self.opens.all[members[n]]):
                if n > place:
                    break
                rows = []
            rows.append(members[n])
        context, first = list[int](), members.index(rows[0], start)
        while len(context) < first and size(members[first - len(context) - 1]) <= before:
            context.append(members[first - len(context) - 1])
            before -= size(context[-1]) + 1
        return context[::-1], rows

    def near(self, row: int, size: Callable[[int], int], before: int) -> list[int]:
        """The rows that are read otherwise once a row is added or dropped; see `window`."""
        members, place = self._in_thread(row)
        start, end = self._opening(members, max(0, place - 1)), place + 1
        while end < len(members) and (before >= 0 or not self.opens.all[members[end]]):
            before -= size(members[end]) + 1
            end += 1
        return members[start:end]

    def conversations(self, mask: Mask) -> list[list[int]]:
        """The rows of each thread that has a name, as far as they may be seen, in order."""
        return [[row for row in members if mask[row]] for members in self._members.values()]

    def _in_thread(self, row: int) -> tuple[list[int], int]:
        """(the rows of its thread in order, its place among them)."""
        members = self._members.get(int(self.thread.all[row]), [row])
        return members, bisect.bisect_left(members, self._order(row), key=self._order) if len(members) > 1 else 0

    def _opening(self, members: list[int], place: int) -> int:
        """The place of the row at or before this one that opens a window."""
        while place and not self.opens.all[members[place]]:
            place -= 1
        return place

    def other_side(self, row: int) -> int:
        """The turn that a row's turn answers, or that answers it; -1 where there is none."""
        other = self._beside(row, self.before.all if self.replies.all[row] else self.after.all)
        return int(self.turn.all[other]) if other >= 0 and self.replies.all[other] != self.replies.all[row] else -1

    def reply(self, row: int) -> int:
        """What was said right after a question, by somebody else; -1 where there is nothing."""
        other = self._beside(row, self.after.all) if self.asks.all[row] else -1
        return other if other >= 0 and self.speaker.all[other] != self.speaker.all[row] else -1

    def next(self, row: int) -> int:
        """What who said this said next, within a few minutes, of the same sort; -1 where there is nothing."""
        same = self.alive.all & (self.scope.all == self.scope.all[row]) & (self.speaker.all == self.speaker.all[row])
        said = self.said.all - self.said.all[row]
        rows = np.flatnonzero(same & (said > 0) & (said <= PAUSE_S) & (self.turn.all != self.turn.all[row]))
        return int(rows[np.argmin(said[rows])]) if len(rows) else -1

    def _beside(self, row: int, step: Rows) -> int:
        """The first row of another turn, step by step; -1 where there is none."""
        other = int(step[row])
        while other >= 0 and self.turn.all[other] == self.turn.all[row]:
            other = int(step[other])
        return other

    def allowed(self, view: View) -> Mask:
        """[rows]: those that a search may look at."""
        verdicts = self._verdicts.setdefault(view.key, [])
        new = self.scopes.values[len(verdicts) :]
        view.expect(id for _, _, *sources in new for id in sources)
        verdicts += [view.may(*scope) for scope in new]
        if len(self._verdicts) > MAX_CACHED_VIEWS:
            del self._verdicts[next(iter(self._verdicts))]
        mask = np.array(verdicts or [False], bool)[self.scope.all]
        mask[[self._row[id] for id in view.single() if id in self._row]] = True
        mask &= self.alive.all
        if view.kinds is not None:
            mask &= np.isin(self.kind.all, [self.kinds.find(kind) for kind in view.kinds])
        elif not view.summaries and view.enough is None:  # what they quote is there itself
            mask &= ~self.summaries
        if view.among is not None:
            among = np.zeros(len(mask), bool)
            among[[self._row[id] for id in view.among if id in self._row]] = True
            mask &= among
        if view.since is not None:
            mask &= self.said.all >= view.since.timestamp()
        if view.until is not None:
            mask &= self.said.all <= view.until.timestamp()
        return mask

    def owner(self, row: int) -> str:
        return str(self.scopes.values[self.scope.all[row]][1].owner)

    def owned(self, user: str) -> Mask:
        """[rows]: those of this owner."""
        return np.array([rights.owner == user for _, rights, *_ in self.scopes.values] or [False])[self.scope.all]

    def named(self, text: str) -> list[int]:
        """The speakers whose names stand in a text."""
        words = re.findall(r"\w+", text.casefold())
        runs = (" ".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1))
        return sorted({code for run in runs if (code := self.speakers.find(run)) >= 0})

    @staticmethod
    def step(rows: Rows, to: Rows) -> Rows:
        """The rows that these lead to; -1 stays -1."""
        return np.where(rows >= 0, to[rows], -1)

    def group(self, name: str) -> int:
        """The code of the topic group that is called so; -1 where none is, or none that shows its name."""
        return -1 if name.startswith(_NAMELESS) else self.subjects.find(name.casefold())

    def of_group(self, name: str, mask: Mask) -> list[int]:
        """The rows of a topic group that may be seen, in the order of their adding."""
        code = self.group(name)
        return [row for row in self._groups[code] if mask[row]] if code >= 0 else []

    def in_groups(self, rows: Iterable[int], mask: Mask) -> Rows:
        """The rows of the topic groups of these rows that may be seen; of a group beyond all measure, such as that of
        memories without one, those that were added shortly before and after."""
        found: dict[int, None] = {}
        subject_of = self.subject.all.item
        for subject, near in groupby(sorted(rows, key=subject_of), key=subject_of):
            group = np.array(self._groups[subject], np.int64)
            group = group[mask[group]]
            for row in near:
                at = int(np.searchsorted(group, row)) if len(group) > MAX_GROUP_ROWS else 0
                most = slice(max(0, at - NEAR_ROWS), at + NEAR_ROWS + 1) if len(group) > MAX_GROUP_ROWS else slice(None)
                found |= dict.fromkeys(group[most].tolist())
        return np.array(list(found), np.int64)


def _used(codes: npt.NDArray[np.int32]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """The codes that occur, and for each row which of these it has."""
    used, which = np.unique(codes, return_inverse=True)
    return used.tolist(), which.astype(np.int32)
