"""`memos bench supersession`: compares which memories stay in force after a new one with a person's verdict.

The cases are in supersession.yaml: change of mind, addition, time, negation, another subject; English and Chinese; and
in updates.yaml, as people type them. Each is told to a kernel as a user of its own, turn by turn, and what is read in
the background is waited for. Judged is each earlier statement: out of force or not. No language model runs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from memos.cube import ANSWERING, MemCube
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

HELD_OUT = 3  # every third case
_BEGIN = datetime(2025, 1, 1, 9, tzinfo=timezone.utc)
_NAMED = re.compile(r"(?!Correction)([A-Z]\w+|[\u4e00-\u9fff]{2,3}): +")


@dataclass(frozen=True)
class Case:
    """Statements, the new one, and which of the earlier ones (from 0) are out of force afterwards."""

    language: str
    kind: str
    said: tuple[str, ...]
    then: str
    out: frozenset[int]
    days: tuple[int, ...]
    held_out: bool


@dataclass(frozen=True)
class Outcome:
    """What became of the earlier statements of a case."""

    case: Case
    out: frozenset[int]
    lost: frozenset[int]  # not in the vault any more
    unkept: int  # statements that were not worth keeping to the reader

    @property
    def wrong(self) -> bool:
        return self.out != self.case.out or bool(self.lost)


def cases() -> list[Case]:
    """In the order of the file."""
    book = yaml.safe_load(files("memos.bench.developer").joinpath("supersession.yaml").read_text("utf-8"))
    listed = [(language, kind, case) for language, kinds in book.items() for kind in kinds for case in kinds[kind]]
    return [
        Case(
            language=language,
            kind=kind,
            said=tuple(case["said"]),
            then=case["then"],
            out=frozenset(n - 1 for n in case["out"]),
            days=tuple(case.get("days", range(1, len(case["said"]) + 2))),
            held_out=n % HELD_OUT == 0,
        )
        for n, (language, kind, case) in enumerate(listed, start=1)
    ]


def typed() -> list[Case]:
    """As people type: of updates.yaml every second case is held out."""
    book = yaml.safe_load(files("memos.bench.developer").joinpath("updates.yaml").read_text("utf-8"))
    return [
        Case(
            language=case["lang"],
            kind=case["kind"],
            said=tuple(case["said"]),
            then=case["then"],
            out=frozenset(n - 1 for n in case["out"]),
            days=tuple(range(1, len(case["said"]) + 2)),
            held_out=n % 2 == 0,
        )
        for n, case in enumerate(book, start=1)
    ]


def tell(kernel: MemOS, case: Case, user: str) -> Outcome:
    """Say it all to the kernel, and look."""
    told = zip((*case.said, case.then), case.days, strict=True)
    kept = [kernel.within(user).add([_turn(words, day)]) for words, day in told]
    kernel.within(user).tick()  # what is left to the background
    earlier = [cubes[0] if cubes else None for cubes in kept[:-1]]
    there = {cube.id: cube for cube in kernel.within(user).cubes()}
    return Outcome(
        case=case,
        out=frozenset(n for n, cube in enumerate(earlier) if cube and _is_out(there.get(cube.id))),
        lost=frozenset(n for n, cube in enumerate(earlier) if cube and not _is_whole(kernel, cube, user)),
        unkept=earlier.count(None),
    )


def bench_supersession(show: Show, chosen: Sequence[Case] | None = None) -> dict[str, Any]:
    """Precision and recall of what is put out of force: of all cases, of those held out, by kind and by language."""
    told = list(cases() if chosen is None else chosen)
    outcomes = list[Outcome]()
    with tempfile.TemporaryDirectory() as folder, MemOS(vault=Path(folder) / "vault") as kernel:
        for n, case in enumerate(told, start=1):
            outcomes.append(tell(kernel, case, f"user{n}"))
            show("cases", n, len(told))
    groups: dict[str, list[Outcome]] = {"all": outcomes, "held out": [o for o in outcomes if o.case.held_out]}
    for outcome in outcomes:
        for name in (outcome.case.language, f"{outcome.case.language}, {outcome.case.kind}"):
            groups.setdefault(name, []).append(outcome)
    return {
        "cases": len(told),
        "rows": [{"cases of": name, **_figures(group)} for name, group in groups.items() if group],
        "failures": [_failure(outcome) for outcome in outcomes if outcome.wrong],
    }


def _turn(words: str, day: int) -> dict[str, Any]:
    named = _NAMED.match(words)
    said = (_BEGIN + timedelta(days=day)).isoformat()
    return {"speaker": named[1], "content": words[named.end() :], "time": said} if named else {
        "role": "user", "content": words, "time": said,
    }  # fmt: skip


def _is_out(cube: MemCube | None) -> bool:
    return cube is None or cube.state not in ANSWERING


def _is_whole(kernel: MemOS, cube: MemCube, user: str) -> bool:
    """True if a statement is still there, word for word, with its history."""
    return kernel.within(user).get(cube.id).text == cube.text and bool(kernel.within(user).history(cube.id))


def _figures(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    told = list(outcomes)
    right = sum(len(o.out & o.case.out) for o in told)
    put_out, wanted = sum(len(o.out) for o in told), sum(len(o.case.out) for o in told)
    return {
        "cases": len(told),
        "precision": right / put_out if put_out else 1.0,
        "recall": right / wanted if wanted else 1.0,
        "put_out": put_out,
        "wanted": wanted,
        "lost": sum(len(o.lost) for o in told),
        "unkept": sum(o.unkept for o in told),
    }


def _failure(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {
        "language": case.language,
        "kind": case.kind,
        "held_out": case.held_out,
        "said": case.said,
        "then": case.then,
        "wanted": sorted(n + 1 for n in case.out),
        "out": sorted(n + 1 for n in outcome.out),
        "lost": sorted(n + 1 for n in outcome.lost),
    }
