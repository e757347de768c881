"""The report of a run as a page that stands alone: figures, and every question with what was shown and answered.

All that was said is data: the template escapes it, or hands it as JSON to a script that sets text and never markup, and
the page's own policy runs that one script alone. What a clock says is left out, so the same records give the same page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from memos.bench.qa.records import Record
from memos.bench.qa.report import COUNTS as MEASURED
from memos.bench.qa.report import RIGHT, SHARES, Judged, Row, Scoring, own_figure, score_all
from memos.bench.qa.shown import FULL_CONTEXT, Exhibit
from memos.bench.qa.tables import ABSENT, Grid, band, chance, figure, label, plot_qa, share
from memos.plugins.experiment.folder import writable

MEASURES = (  # a table each, beside F1
    ("bleu1", "BLEU-1", "as A-Mem, mem0 and MemoryOS compute it"),
    ("f1_words", "F1 of distinct words", "as A-Mem, mem0 and MemoryOS compute it"),
    ("evidence_recall", "Evidence shown", "share of the turns that answer, among what was shown"),
    ("refused", "Refused", "share that says that nothing answers"),
    ("judged", "Judged right", "by a judge that passed its examination"),
    ("tokens_mean", "Tokens", "of a prompt, mean"),
    ("model_calls", "Calls", "of the model"),
    ("left_out", "Left out", "memories that did not fit into the model's context"),
    ("failed", "Failed", "questions without an answer, which no other figure counts"),
)
ANSWER = (  # what the page keeps of an answer, in this order
    *("text", "failed", "f1", "corrected", "bleu1", "refused", "recall", "judged"),
    *("confidence", "tokens", "calls", "left_out"),
)
Json = Any  # what is handed to the page's script


def write_page(report: Row, records: Sequence[Record], folder: Path, judged: Judged | None = None) -> None:
    """report.html and report.png in the folder of a run, whose shown/ is read. Raises InputError where it cannot be
    written."""
    grid, ordered = Grid.of(report), sorted(records, key=lambda record: record.id)
    page = rendered(
        "report.html",
        script="report.js",
        report=report,
        grid=grid,
        measures=[measure for measure in MEASURES if grid.measured(measure[0])],
        facts=_facts(report),
        published=[cell for one in report.get("published") or () for cell in _beside(report, one)],
        questions=_questions(grid, ordered, judged or {}),
        conversations=_conversations(ordered, folder),
    )
    with writable(folder):
        plot_qa(report, folder / "report.png")
        (folder / "report.html").write_text(page, "utf-8")


def rendered(template: str, script: str = "", **given: object) -> str:
    """A page with the dashboard's look. script: the only one that may run on it."""
    code = _static(script) if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    dashboard = files("memos.plugins.dashboard") / "static"
    page = _templates().get_template(template)
    return page.render(
        **given,
        style=(dashboard / "style.css").read_text("utf-8") + _static("page.css"),
        icon=(dashboard / "icon.svg").read_text("utf-8"),
        script=code,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
    )


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("memos.bench.qa", "static"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    templates.filters |= {"share": share, "band": band, "chance": chance}
    templates.globals |= {"figure": figure, "label": label, "ABSENT": ABSENT, "RIGHT": RIGHT}
    return templates


def _static(name: str) -> str:
    return (files("memos.bench.qa") / "static" / name).read_text("utf-8")


def _facts(report: Row) -> list[tuple[str, str]]:
    """What was measured, and with what."""
    conversations = report["conversations"]
    return [
        ("set", report["set"]),
        ("data, SHA-256", report["data"]),
        ("conversations", f"{len(conversations)}: {', '.join(conversations)}"),
        ("questions", f"{sum(row['questions'] for row in report['rows']):,} asked of all systems together"),
        ("model", report["model"]),
        ("systems", ", ".join(report["systems"])),
        ("forms of memory", ", ".join(report["via"])),
        ("tokens of memory", f"{report['budget']:,} at most"),
        ("seed", str(report["seed"])),
        *_of_judge(report),
    ]


def _of_judge(report: Row) -> list[tuple[str, str]]:
    """Who judges, and what came of its examination: the report has it as text, or as figures by name."""
    judge, exam = report.get("judge"), report.get("examination")
    facts = [("judge", _told(judge) if judge else "none: no answer is judged by a model")]
    return [*facts, ("its examination", _told(exam))] if exam else facts


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{str(name).replace('_', ' ')}: {_told(one)}" for name, one in value.items() if one != "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return share(value) if isinstance(value, float) else str(value)


def _beside(report: Row, published: Row) -> list[Row]:
    """Each figure of a cell that a paper prints, with one's own."""
    system, category = published["system"], published["category"]
    return [
        {
            "name": published.get("name") or system,
            "category": category,
            "measure": name,
            "printed": figure(measure, published[measure]),
            "own": figure(measure, own_figure(report, system, category, measure)) if system else ABSENT,
            "source": published["source"],
        }
        for measure, name in (SHARES | MEASURED).items()
        if measure in published
    ]


def _questions(grid: Grid, records: Sequence[Record], judged: Judged) -> Json:
    """Every question, with an answer or null for each of the systems."""
    scorings = {scoring.record.id: scoring for scoring in score_all(records)}
    places = {system: n for n, system in enumerate(grid.systems)}
    questions = dict[tuple[str, int], Json]()
    for record in records:
        file, number = question_of(record)
        question = questions.setdefault((file, number), {
            "file": file,
            "number": number,
            "category": record.category,
            "question": record.question,
            "gold": record.gold,
            "corrected": record.corrected,
            "evidence": record.evidence,
            "answers": [None] * len(places),
        })  # fmt: skip
        answer = _answer(record, scorings.get(record.id), judged.get(record.id))
        question["answers"][places[record.system, record.via]] = answer
    return {
        "systems": [{"name": system, "label": label(system, via)} for system, via in grid.systems],
        "fields": ANSWER,
        "right": RIGHT,
        "all": [questions[key] for key in sorted(questions)],
    }


def _answer(record: Record, scoring: Scoring | None, judged: bool | None) -> list[Json]:
    """As ANSWER names it."""
    answer = record.answer
    scores: tuple[Json, ...] = (None,) * 4
    if scoring is not None:
        given = scoring.scores
        scores = (_short(given.f1), _short(scoring.corrected.f1), _short(given.bleu1), bool(given.refused))
    rest = (_short(answer.confidence), answer.prompt_tokens, answer.calls, answer.left_out)
    return [answer.text, answer.failed, *scores, _short(record.evidence_recall), judged, *rest]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def question_of(record: Record) -> tuple[str, int]:
    """The conversation's name as a file has it, and the question's place in that."""
    _, file, number = record.id.rsplit("/", 2)
    return file, int(number)


def _conversations(records: Sequence[Record], folder: Path) -> Json:
    """For each file of shown/: the memories once, and which of them each system shows for each question, with their
    scores (place, score, place, score, …); of full context only how many."""
    asked: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for record in records:
        file, number = question_of(record)
        asked.setdefault((file, record.conversation), set()).add((record.system, number))
    return [
        {"file": file, "name": name, **_shown(_exhibit(folder, file), asked[file, name])}
        for file, name in sorted(asked)
    ]


def _exhibit(folder: Path, file: str) -> Exhibit:
    return Exhibit.model_validate_json((folder / "shown" / f"{file}.json").read_text("utf-8"))


def _shown(exhibit: Exhibit, asked: set[tuple[str, int]]) -> Json:
    found = dict[str, dict[int, list[float] | int]]()
    for system, number in sorted(asked):
        hits = exhibit.found[system][number]
        whole = system == FULL_CONTEXT
        shown: list[float] | int = (
            len(hits) if whole else [x for place, score in hits for x in (place, round(score, 4))]
        )
        found.setdefault(system, {})[number] = shown
    memories = [(memory.text, memory.speaker, memory.said, memory.turns) for memory in exhibit.memories]
    return {"memories": memories, "found": found}
