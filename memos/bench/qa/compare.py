"""`memos bench compare`: what two runs of `memos bench qa` differ in, and which questions flipped; runs nothing.

All figures are over the questions that both runs asked, scored anew, so runs of other lengths and versions compare.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memos.bench.qa.intervals import difference
from memos.bench.qa.page import rendered
from memos.bench.qa.records import Record
from memos.bench.qa.report import RIGHT, Row, Scoring, rows_of, score_all, totals_of
from memos.bench.qa.run import Plan
from memos.bench.qa.tables import ANSWERABLE, in_order
from memos.errors import InputError
from memos.plugins.progress import Show

MEASURES = ("f1", "f1_corrected", "bleu1", "evidence_recall", "refused", "tokens_mean", "model_calls", "failed")
FLIPS = (  # kinds, in the order in which they are counted
    *("right to wrong", "wrong to right", "refused now", "refused no more", "failed now", "failed no more"),
)
SHORT = 12  # characters of a digest that tell it from others
Key = tuple[str, str, str]  # system, form, category


@dataclass(frozen=True)
class FinishedRun:
    folder: Path
    plan: Plan
    report: Row
    records: dict[str, Record]  # by id


def compare(a: Path, b: Path, seed: int, show: Show) -> dict[str, Any]:
    """What changed from A to B: folders of runs, or the report.json in them.

    changed: of what was asked for. rows: figures of both by system, form and category, and the difference in F1 (B - A)
    in pairs; `answerable` stands for all categories that something answers. only_a, only_b: systems that one run alone
    has. flips: questions that are right, refused or failed in one run alone, the most telling first. Raises InputError.
    """
    runs = [read_run(place, show) for place in (a, b)]
    before, after = runs
    if before.plan.data != after.plan.data:
        raise InputError(
            f"{before.folder} and {after.folder} are of different data ({before.plan.data[:SHORT]}, "
            f"{after.plan.data[:SHORT]}); compare runs of the same --data"
        )
    old = before.records.items()
    both = [id for name in before.plan.systems for id, r in old if r.system == name and id in after.records]
    if not both:
        raise InputError(
            f"{before.folder} and {after.folder} share no question of the same system and form; compare runs that do: "
            f"the one has {', '.join(before.plan.systems)}, the other {', '.join(after.plan.systems)}"
        )
    shared = [[run.records[id] for id in both] for run in runs]
    scored = [{scoring.record.id: scoring for scoring in score_all(records)} for records in shared]
    pairs = [(scored[0].get(id), scored[1].get(id)) for id in both]
    flips = [flip for x, y, pair in zip(*shared, pairs, strict=True) if (flip := _flip(x, y, *pair))]
    counts = Counter(kind for flip in flips for kind in flip["kinds"])
    return {
        "a": str(before.folder),
        "b": str(after.folder),
        "changed": _changed(before, after),
        "questions": len(both),
        "only_a": sorted(set(before.plan.systems) - set(after.plan.systems)),
        "only_b": sorted(set(after.plan.systems) - set(before.plan.systems)),
        "rows": _rows(shared[0], shared[1], [(x, y) for x, y in pairs if x and y], seed),
        "flip_counts": {kind: counts[kind] for kind in FLIPS},
        "flips": sorted(flips, key=_telling),
    }


def write_comparison(comparison: Mapping[str, Any], file: Path) -> None:
    """As a page that stands alone. Raises InputError where it cannot be written."""
    page = rendered("compare.html", comparison=comparison)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, "utf-8")
    except OSError as error:
        raise InputError(f"--html {file} cannot be written: {error}; give a file that can") from None


def read_run(place: Path, show: Show) -> FinishedRun:
    """The run in this folder, or whose report.json this is. Raises InputError."""
    folder = place.parent if place.name == "report.json" else place
    plan, report = folder / "plan.json", folder / "report.json"
    if not plan.is_file():
        raise InputError(f"{place} holds no run of `memos bench qa` (no plan.json); give the folder of its --out")
    if not report.is_file():
        raise InputError(
            f"the run in {folder} has not come to its end (no report.json); go on with the same `memos bench qa` and "
            f"--out {folder}"
        )
    try:
        found = json.loads(report.read_text("utf-8"))
        asked = sum(row["questions"] for row in found["rows"])
        files, records = sorted((folder / "answers").rglob("*.json")), list[Record]()
        for n, file in enumerate(files, start=1):
            records.append(Record.model_validate_json(file.read_text("utf-8")))
            if n % 100 == 0 or n == len(files):
                show(f"answers of {folder}", n, len(files))
        run = FinishedRun(folder, Plan.model_validate_json(plan.read_text("utf-8")), found, {r.id: r for r in records})
    except (OSError, ValidationError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the run in {folder} cannot be read ({str(error).splitlines()[0]}); run it again into a new --out"
        ) from None
    if len(records) < asked:
        raise InputError(
            f"{folder / 'answers'} has {len(records)} of {asked} answers; go on with the same `memos bench qa` and "
            f"--out {folder}"
        )
    return run


def _changed(before: FinishedRun, after: FinishedRun) -> list[dict[str, str]]:
    """What was asked for in other words; of settings only that they differ is known."""
    plans = [
        run.plan.model_dump() | {"config": run.plan.config[:SHORT], "judge": run.report.get("judge")}
        for run in (before, after)
    ]
    return [
        {"what": name, "a": _told(plans[0][name]), "b": _told(plans[1][name])}
        for name in plans[0]
        if plans[0][name] != plans[1][name]
    ]


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


def _rows(
    old: Sequence[Record], new: Sequence[Record], pairs: Sequence[tuple[Scoring, Scoring]], seed: int
) -> list[Row]:
    """By system, form and category, and for all that are answerable."""
    figures = [_figures(records, seed) for records in (old, new)]
    paired: dict[Key, list[tuple[Scoring, Scoring]]] = defaultdict(list)
    for x, y in pairs:
        record = x.record
        paired[record.system, record.via, record.category].append((x, y))
        if not record.unanswerable:
            paired[record.system, record.via, ANSWERABLE].append((x, y))
    systems = dict.fromkeys((system, via) for system, via, _ in figures[0])
    categories = (*in_order({key[2] for key in figures[0]} - {ANSWERABLE}), ANSWERABLE)
    keys = [(*system, category) for system in systems for category in categories if (*system, category) in figures[0]]
    return [
        {
            **dict(zip(("system", "via", "category"), key, strict=True)),
            "a": {name: figures[0][key].get(name) for name in MEASURES},
            "b": {name: figures[1].get(key, {}).get(name) for name in MEASURES},
            **_difference(paired[key], seed),
        }
        for key in keys
    ]


def _figures(records: Sequence[Record], seed: int) -> dict[Key, Row]:
    """The rows of a report over these, and of its totals what is over all that are answerable."""
    found = {(row["system"], row["via"], row["category"]): row for row in rows_of(records, None, seed)}
    for total in totals_of(records, seed):
        if "f1" in total:
            row = {"f1": total["f1"], "f1_corrected": total["f1_corrected"], "refused": total["refused_wrongly"]}
            found[total["system"], total["via"], ANSWERABLE] = row
    return found


def _difference(pairs: Sequence[tuple[Scoring, Scoring]], seed: int) -> Row:
    """Of F1, B - A, over the questions that both answered."""
    if not pairs:
        return {"pairs": 0, **dict.fromkeys(("difference", "low", "high", "p"))}
    values = [[scoring.scores.f1 for scoring in side] for side in zip(*pairs, strict=True)]
    found = difference(values[1], values[0], [x.record.conversation for x, _ in pairs], seed)
    return {"pairs": len(pairs), "difference": found.mean, "low": found.low, "high": found.high, "p": found.p}


def _flip(old: Record, new: Record, x: Scoring | None, y: Scoring | None) -> Row | None:
    """A question that is right, refused or failed in one run alone; a scoring is missing where there is no answer."""
    kinds = _kinds(x, y)
    if not kinds:
        return None
    return {
        "id": old.id,
        "kinds": kinds,
        **{name: getattr(old, name) for name in ("system", "via", "category", "conversation", "question", "gold")},
        "corrected": new.corrected,
        "difference": y.scores.f1 - x.scores.f1 if x and y else None,
        "a": _side(old, x),
        "b": _side(new, y),
    }


def _kinds(x: Scoring | None, y: Scoring | None) -> list[str]:
    if x is None or y is None:
        return [] if x is y else ["failed now" if y is None else "failed no more"]
    kinds = []
    if (right := y.scores.f1 >= RIGHT) != (x.scores.f1 >= RIGHT):
        kinds.append("wrong to right" if right else "right to wrong")
    if y.scores.refused != x.scores.refused:
        kinds.append("refused now" if y.scores.refused else "refused no more")
    return kinds


def _side(record: Record, scoring: Scoring | None) -> Row:
    return {
        "answer": record.answer.text,
        "failed": record.answer.failed,
        "f1": scoring.scores.f1 if scoring else None,
        "refused": bool(scoring.scores.refused) if scoring else None,
        "evidence_recall": record.evidence_recall,
    }


def _telling(flip: Row) -> tuple[float, float, str]:
    """The largest change of F1 first; of the same those whose evidence came or went, which says why."""
    shown = [flip[side]["evidence_recall"] or 0.0 for side in ("a", "b")]
    return -abs(flip["difference"] or 0.0), -abs(shown[1] - shown[0]), flip["id"]
