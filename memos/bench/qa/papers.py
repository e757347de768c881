"""`memos bench paper`: a table of a paper, run on one's own model, with the published figures beside one's own.

A table is a YAML in `configs/papers`: what is run, which measures, rows and columns the paper's table has, what it
prints there, and what differs from it. Nothing stands there that the paper gives as a plot alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator
from rich.table import Table

from memos.bench.dialogues import CATEGORIES, PROBING, read
from memos.bench.qa.answerers import EXTRACTIVE, EndpointLimits, is_local, of_model
from memos.bench.qa.bench import Ask, bench_qa
from memos.bench.qa.gvd import bench_gvd
from memos.bench.qa.records import Value
from memos.bench.qa.report import ALL, COUNTS, SHARES, own_figure
from memos.bench.qa.run import TEXT
from memos.bench.qa.shown import BASELINES
from memos.bench.ttft import bench_ttft, running
from memos.config import Config
from memos.errors import InputError
from memos.infrastructure.host.host import Host
from memos.operation.policies.policy import POLICIES
from memos.plugins.figures import table_of
from memos.plugins.progress import Show

TIMES = {"build_s": "build", "kv_s": "KV", "direct_s": "direct", "saved": "saved"}
CATEGORY_NAMES = (*CATEGORIES.values(), PROBING, ALL)
SHAPE = "shape:cpu-126m"  # what the time to the first token is measured on, where no model is named
RULES = (
    "The writer is rules: its calls and tokens are those that a model would have been asked, at four characters a "
    "token. A YAML with curators.writer, given with --config, has a model asked."
)
UNJUDGED = "No judge was named, so nothing is judged: name one with --judge, a model's folder or a URL."


class Column(Value):
    """category: one's own, that stands there. paper: how the paper calls it, if otherwise."""

    category: str
    paper: str = ""

    @property
    def name(self) -> str:
        return self.paper or self.category


class PaperRow(Value):
    """system: one's own in this row; none where the paper alone has it. published: by the paper's name of a column, and
    by measure, as it is printed. source: where that stands, if elsewhere than the rest."""

    name: str
    system: str | None = None
    source: str = ""
    published: dict[str, dict[str, float]] = Field(default_factory=dict)


class Answers(Value):
    kind: Literal["qa"]
    set: str
    systems: tuple[str, ...] = ()
    via: tuple[str, ...] = (TEXT,)


class Probing(Value):
    kind: Literal["gvd"]
    systems: tuple[str, ...] = ()


class FirstToken(Value):
    kind: Literal["ttft"]
    set: str
    contexts: tuple[int, ...]
    queries: tuple[int, ...]
    repeats: int = 3


class Paper(Value):
    """percent: shares are printed as percentages, here as there."""

    title: str
    paper: str
    table: str
    run: Annotated[Answers | Probing | FirstToken, Field(discriminator="kind")]
    measures: tuple[str, ...]
    percent: bool = False
    columns: tuple[Column, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _hangs_together(self) -> Paper:
        known = TIMES if isinstance(self.run, FirstToken) else SHARES | COUNTS
        columns, systems = {column.name for column in self.columns}, {*BASELINES}
        if not isinstance(self.run, FirstToken):
            systems |= {*self.run.systems}
            _among("a category", [column.category for column in self.columns], CATEGORY_NAMES)
        _among("a measure", self.measures, known)
        for row in self.rows:
            _among("a column", list(row.published), columns)
            _among("a measure of this table", [name for cell in row.published.values() for name in cell], self.measures)
            _among("a system that is run", [row.system] if row.system else [], systems)
        return self

    @property
    def source(self) -> str:
        return f"{self.paper}, {self.table}"

    def published(self) -> list[dict[str, Any]]:
        """Every figure that is printed, as shares are in reports: from 0 to 1."""
        categories = {column.name: column.category for column in self.columns}
        return [
            {
                "name": row.name,
                "system": row.system,
                "category": categories[column],
                "paper_category": column,
                **{name: self._share(name, value) for name, value in cell.items()},
                "source": row.source or self.source,
            }
            for row in self.rows
            for column, cell in row.published.items()
        ]

    def _share(self, measure: str, value: float) -> float:
        return round(value / 100, 6) if self.percent and measure in SHARES else value


def _among(what: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is not {what}: there are {', '.join(sorted(known))}")


def read_paper(path: Path) -> Paper:
    """Raises InputError."""
    way_out = "give one of configs/papers, or a YAML of their form"
    try:
        paper = Paper.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {way_out}") from None
    except (yaml.YAMLError, ValidationError) as error:
        raise InputError(f"{path} is no table of a paper: {error}; {way_out}") from None
    for name in () if isinstance(paper.run, FirstToken) else paper.run.systems:
        POLICIES.require(name)
    return paper


def bench_paper(paper: Paper, ask: Ask, config: Config, limits: EndpointLimits, show: Show) -> dict[str, Any]:
    """The report of the run that the paper's table takes; `published` has what is printed there. ask.model may be "":
    what needs none to be named. Raises MemosError."""
    beside = {"paper": _about(paper, ask, config), "published": paper.published()}
    match paper.run:
        case Answers(set=kind, systems=systems, via=via):
            ask = replace(ask, kind=kind, systems=systems, via=via, model=ask.model or EXTRACTIVE)
            return bench_qa(ask, config, limits, show, beside)
        case Probing(systems=systems):
            ask = replace(ask, kind="gvd", systems=systems, via=(TEXT,), model=ask.model or EXTRACTIVE)
            return bench_gvd(ask, config, limits, show, beside)
        case FirstToken():
            return _first_tokens(paper.run, replace(ask, model=ask.model or SHAPE), config, show) | beside


def _about(paper: Paper, ask: Ask, config: Config) -> dict[str, Any]:
    notes = list(paper.notes)
    if "calls" in paper.measures and config.curators.writer == "rules":
        notes.append(RULES)
    if {"judged", "correctness"} & {*paper.measures} and ask.judge is None:
        notes.append(UNJUDGED)
    return {"title": paper.title, "source": paper.source, "notes": notes}


def _first_tokens(run: FirstToken, ask: Ask, config: Config, show: Show) -> dict[str, Any]:
    """Of the data's own text: turns as the memory, and questions, which turns follow where they are too short."""
    if not is_local(ask.model):
        raise InputError(
            f"the time to the first token is measured on a model that runs here, which {ask.model} does not; "
            "give --model a folder, a hub name, or shape:NAME"
        )
    assert ask.data is not None
    conversations = read(ask.data, run.set, evidence=False)[: ask.conversations]
    host = Host.load(of_model(config, ask.model).model)
    memory = running(host, [turn.text for one in conversations for turn in one.turns.values()])
    question = running(host, [question.text for one in conversations for question in one.asked])
    report = bench_ttft(host, run.contexts, run.queries, run.repeats, ask.seed, show, memory, question)
    return {"set": run.set, "data": ask.data.name, "device": str(host.model.device), **report}


# -- on the terminal ---------------------------------------------------------------------------------------


def paper_tables(paper: Paper, report: dict[str, Any]) -> list[Table]:
    """In the paper's layout, one's own figure before the printed one."""
    tables = list(_grid(paper, report) if isinstance(paper.run, FirstToken) else _by_row(paper, report))
    tables[0].title = f"{paper.title}: one's own / {paper.source}"
    notes = Table(box=None, pad_edge=False, show_header=False)
    notes.add_column(overflow="fold")
    for note in report["paper"]["notes"]:
        notes.add_row(note)
    return [*tables, notes]


def _by_row(paper: Paper, report: dict[str, Any]) -> Iterator[Table]:
    """A table for each measure; one of all measures where the paper has one column."""
    headings = SHARES | COUNTS
    if len(paper.columns) == 1:
        cells = [(measure, paper.columns[0], headings[measure]) for measure in paper.measures]
        yield _table(paper, report, "", cells)
        return
    for measure in paper.measures:
        cells = [(measure, column, _heading(column)) for column in paper.columns]
        yield _table(paper, report, headings[measure], cells)


def _heading(column: Column) -> str:
    """Both names, where the paper has another."""
    return f"{column.category}\n({column.paper})" if column.paper else column.category


def _table(paper: Paper, report: dict[str, Any], first: str, cells: Sequence[tuple[str, Column, str]]) -> Table:
    table = table_of("", first, *(heading for _, _, heading in cells))
    for row in paper.rows:
        table.add_row(row.name, *(_cell(paper, report, row, column, measure) for measure, column, _ in cells))
    return table


def _cell(paper: Paper, report: dict[str, Any], row: PaperRow, column: Column, measure: str) -> str:
    own = own_figure(report, row.system, column.category, measure) if row.system else None
    if own is not None and paper.percent and measure in SHARES:
        own *= 100
    printed = row.published.get(column.name, {}).get(measure)
    return f"{_figure(own, measure, paper.percent)} / {_figure(printed, measure, paper.percent)}"


def _figure(value: float | None, measure: str, percent: bool) -> str:
    if value is None:
        return "–"
    if measure in SHARES:
        return f"{value:.2f}" if percent else f"{value:.3f}"
    return f"{value:,.1f}" if measure == "calls" else f"{value:,.0f}"


def _grid(paper: Paper, report: dict[str, Any]) -> Iterator[Table]:
    """A row for each length: seconds, what KV saves, and what it saves in the paper on each of its models."""
    names = ("tokens", "tier", "build", "KV", "direct", "saved", "same", "logits")
    table = table_of("", *names, *(row.name.replace("-", "-\n", 1) for row in paper.rows))
    for row in report["rows"]:
        lengths = f"{row['context']}+{row['query']}"
        printed = (one.published.get(lengths, {}).get("saved") for one in paper.rows)
        table.add_row(
            lengths,
            row["tier"],
            *(f"{row[name] / 1e3:.3f}" for name in ("build_ms", "ours_ms", "full_ms")),
            f"{row['saved']:.1%}",
            "yes" if row["equal"] else "no",
            f"{row['max_logit_diff']:.0e}",
            *("–" if saved is None else f"{saved:.1%}" for saved in printed),
        )
    if report["left_out"]:
        left = ", ".join(f"{row['context']}+{row['query']}" for row in report["left_out"])
        table.caption = f"no room in the context of {report['model']['path']}: {left}"
    yield table
