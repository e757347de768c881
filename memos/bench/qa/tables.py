"""Prints and plots the reports of `memos bench qa` and `compare`; knows their shapes, not what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from memos.bench.dialogues import CATEGORIES
from memos.bench.qa.report import Row
from memos.bench.qa.shown import OURS
from memos.plugins.figures import table_of

ABSENT = "–"
ANSWERABLE = "answerable"  # all categories of questions that something answers
COLUMNS = 5  # categories side by side in 80 characters
NAMED = 5  # failures that are named
FLIPPED = 10  # questions that are named
COUNTS = ("questions", "tokens_mean", "model_calls", "left_out", "failed")  # no shares
PLAIN = ("none", "plaintext")  # forms that need no mention


@dataclass(frozen=True)
class Grid:
    """The rows of a report by system and category, in the order in which they are shown."""

    systems: tuple[tuple[str, str], ...]  # (system, via)
    categories: tuple[str, ...]
    rows: dict[tuple[str, str, str], Row]
    totals: dict[tuple[str, str], Row]

    @classmethod
    def of(cls, report: Row) -> Grid:
        places = {name: n for n, name in enumerate(report.get("systems", ()))}
        systems = {(row["system"], row["via"]) for row in report["rows"]}
        return cls(
            systems=tuple(sorted(systems, key=lambda one: (places.get(one[0], len(places)), one))),
            categories=in_order({row["category"] for row in report["rows"]}),
            rows={(row["system"], row["via"], row["category"]): row for row in report["rows"]},
            totals={(row["system"], row["via"]): row for row in report["totals"]},
        )

    def value(self, system: tuple[str, str], category: str, measure: str) -> float | None:
        return self.rows.get((*system, category), {}).get(measure)

    def values(self, system: tuple[str, str], measure: str) -> list[float]:
        """Of all categories that have it."""
        every = (self.value(system, category, measure) for category in self.categories)
        return [value for value in every if value is not None]

    def measured(self, measure: str) -> bool:
        return any(self.values(system, measure) for system in self.systems)


def in_order(categories: set[str]) -> tuple[str, ...]:
    """LoCoMo's as its authors count them, then others by name."""
    known = [*CATEGORIES.values()]
    return tuple(sorted(categories, key=lambda name: (known.index(name) if name in known else len(known), name)))


def label(system: str, via: str) -> str:
    return system if via in PLAIN else f"{system}, {via}"


def share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def chance(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else share(p)


def figure(measure: str, value: float | None) -> str:
    """A share with three digits, a number of things with none."""
    return f"{value:,.0f}" if measure in COUNTS and value is not None else share(value)


def band(row: Row) -> str:
    """F1 and what 95 % of it lie within."""
    if row.get("f1") is None:
        return ABSENT
    return f"{row['f1']:.3f} [{row['f1_low']:.3f}, {row['f1_high']:.3f}]"


def qa_tables(report: dict[str, Any]) -> list[Table]:
    """F1 and evidence shown by system and category, the rest by system, and what failed."""
    grid = Grid.of(report)
    bands = [band(grid.totals.get(system, {})) for system in grid.systems]
    tables = _by_category(grid, "f1", _title(report), f"{ANSWERABLE}, 95 %", bands)
    for measure, title in (("evidence_recall", "share of the evidence that was shown"), ("judged", "judged right")):
        if grid.measured(measure):
            tables += _by_category(grid, measure, title)
    tables.append(_rest(grid))
    return [*tables, failures_table(report["failures"])] if report["failures"] else tables


def _title(report: dict[str, Any]) -> str:
    count, judge = len(report["conversations"]), report.get("judge")
    return (
        f"F1, {report['set']}: {count} conversation{'s' if count != 1 else ''}, model {report['model']}, "
        f"{report['budget']:,} tokens of memory" + (f", judge {judge}" if isinstance(judge, str) else "")
    )


def _by_category(grid: Grid, measure: str, title: str, total: str = "", totals: Sequence[str] = ()) -> list[Table]:
    """As many tables as the categories need; the total stands last in the last."""
    parts = [grid.categories[n : n + COLUMNS] for n in range(0, len(grid.categories), COLUMNS)]
    tables = []
    for part in parts:
        last = total if part is parts[-1] else ""
        columns = [escape(name.replace("-", "-\n").replace("_", "\n")) for name in part]
        table = table_of(escape(title) if part is parts[0] else "", "system", *columns, *([last] if last else []))
        for n, system in enumerate(grid.systems):
            cells = [figure(measure, grid.value(system, category, measure)) for category in part]
            table.add_row(label(*system), *cells, *([totals[n]] if last else []))
        tables.append(table)
    return tables


def _rest(grid: Grid) -> Table:
    """What stands for a whole system. F1 by the audited key, refusals where something answers and where nothing does,
    and the difference to OURS in pairs, are the report's own totals; tokens are the mean of all prompts."""
    columns = ("system", "corrected\nkey", "refused\nwrongly", "refused\nrightly", "tokens", "calls", "left\nout")
    table = table_of("", *columns, "failed", f"to {OURS}", "p")
    for system in grid.systems:
        total = grid.totals.get(system, {})
        beside = total.get("beside_memos", {})
        table.add_row(
            label(*system), *(share(total.get(n)) for n in ("f1_corrected", "refused_wrongly", "refused_rightly")),
            figure("tokens_mean", tokens_mean(grid, system)),
            *(f"{int(sum(grid.values(system, n))):,}" for n in ("model_calls", "left_out", "failed")),
            f"{beside['difference']:+.3f}" if beside else ABSENT, chance(beside.get("p")),
        )  # fmt: skip
    return table


def tokens_mean(grid: Grid, system: tuple[str, str]) -> float | None:
    """Of all prompts of a system."""
    rows = [row for category in grid.categories if (row := grid.rows.get((*system, category)))]
    answered = [row["questions"] - row["failed"] for row in rows]
    tokens = sum(n * (row["tokens_mean"] or 0.0) for n, row in zip(answered, rows, strict=True))
    return tokens / sum(answered) if sum(answered) else None


def failures_table(failures: Sequence[dict[str, str]]) -> Table:
    """Some of the questions without an answer, a line each, and how many more there are."""
    table = _folding("")
    table.add_column(overflow="fold")
    for one in failures[:NAMED]:
        where = f"{label(one['system'], one['via'])}, {one['conversation']}"
        table.add_row(Text(f"failed: {where}: {one['question']!r}: {one['why']}"))  # no markup of what was said
    if (more := len(failures) - NAMED) > 0:
        table.add_row(Text(f"and {more:,} more without an answer: report.json has all"))
    return table


def plot_qa(report: dict[str, Any], path: Path) -> None:
    """F1 of each system with its interval, a panel for all and for each category, and the tokens of prompts, as a
    PNG."""
    import matplotlib

    matplotlib.use("Agg")  # no screen needed
    from matplotlib import pyplot

    grid = Grid.of(report)
    systems, labels = grid.systems, [label(*system) for system in grid.systems]
    panels = [(ANSWERABLE, [grid.totals.get(s, {}) for s in systems])]
    panels += [(c, [grid.rows.get((*s, c), {}) for s in systems]) for c in grid.categories]
    across = min(4, len(panels) + 1)
    down = -(-(len(panels) + 1) // across)
    size = (3.2 * across, (0.35 * len(systems) + 1.3) * down)
    figure_, axes = pyplot.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    flat = list(chain(*axes))
    for axis, (title, rows) in zip(flat, panels, strict=False):
        values = [row.get("f1") or 0.0 for row in rows]
        lows = [max(0.0, value - (row.get("f1_low") or 0.0)) for value, row in zip(values, rows, strict=True)]
        highs = [max(0.0, (row.get("f1_high") or 0.0) - value) for value, row in zip(values, rows, strict=True)]
        axis.barh(labels, values, xerr=[lows, highs], color="#3b6ea5", ecolor="#b5542b")
        axis.set(title=title, xlabel="F1; 95 %", xlim=(0, 1))
    flat[len(panels)].barh(labels, [tokens_mean(grid, s) or 0.0 for s in systems], color="#3b6ea5")
    flat[len(panels)].set(title="prompt", xlabel="tokens, mean")
    for axis in flat:
        axis.spines[["top", "right"]].set_visible(False)
    for axis in flat[len(panels) + 1 :]:
        axis.set_visible(False)
    axes[0][0].invert_yaxis()
    figure_.suptitle(_title(report).replace("$", r"\$"))  # a dollar begins mathematics
    figure_.tight_layout()
    figure_.savefig(path, dpi=120)
    pyplot.close(figure_)


def compare_tables(comparison: dict[str, Any]) -> list[Table]:
    """What was asked for in other words, the figures of both runs, and the questions that flipped."""
    return [
        _changes(comparison),
        _f1_of_both(comparison["rows"]),
        _rest_of_both(comparison["rows"]),
        _flips(comparison),
    ]


def _changes(comparison: dict[str, Any]) -> Table:
    table = _folding(f"A: {comparison['a']}\nB: {comparison['b']}", "changed", "A", "B")
    for one in comparison["changed"]:
        table.add_row(one["what"], Text(one["a"]), Text(one["b"]))
    if not comparison["changed"]:
        table.add_row("nothing that was asked for", "", "")
    return table


def _f1_of_both(rows: Sequence[Row]) -> Table:
    table = _two_names("F1, and the difference in pairs", "pairs", "A", "B", "B - A", "95 %", "p")
    for row in rows:
        told = (
            [f"{row['difference']:+.3f}", f"[{row['low']:+.3f}, {row['high']:+.3f}]"] if row["pairs"] else [ABSENT] * 2
        )
        both = (share(row[side]["f1"]) for side in ("a", "b"))
        table.add_row(*_named(row), f"{row['pairs']:,}", *both, *told, chance(row["p"]))
    return table


def _rest_of_both(rows: Sequence[Row]) -> Table:
    shown = {"evidence_recall": "evidence", "refused": "refused", "tokens_mean": "tokens", "failed": "failed"}
    table = _two_names("A → B", *shown.values())
    for row in (row for row in rows if row["category"] != ANSWERABLE):
        both = (" → ".join(figure(name, row[side][name]) for side in ("a", "b")) for name in shown)
        table.add_row(*_named(row), *both)
    return table


def _two_names(title: str, *names: str) -> Table:
    """A system and a category, which may go on in the next line, then numbers."""
    table = table_of(title, "system", "category", *names)
    table.columns[1].justify, table.columns[1].no_wrap, table.columns[1].overflow = "left", False, "fold"
    return table


def _named(row: Row) -> tuple[str, str]:
    return label(row["system"], row["via"]), escape(row["category"].replace("_", " "))


def _flips(comparison: dict[str, Any]) -> Table:
    """The most telling, a line each, and how many there are of each kind."""
    flips, counts = comparison["flips"], comparison["flip_counts"]
    table = _folding(", ".join(f"{kind}: {count:,}" for kind, count in counts.items() if count) or "none flipped")
    table.add_column(overflow="fold")
    for flip in flips[:FLIPPED]:
        answers = " → ".join(
            repr(flip[side]["answer"]) if not flip[side]["failed"] else "failed" for side in ("a", "b")
        )
        where = f"{label(flip['system'], flip['via'])}, {flip['conversation']}, {flip['category']}"
        table.add_row(Text(f"{', '.join(flip['kinds'])}: {where}: {flip['question']!r}, {flip['gold']!r}: {answers}"))
    if (more := len(flips) - FLIPPED) > 0:
        table.add_row(Text(f"and {more:,} more: --json and --html have all"))
    return table


def _folding(title: str, *names: str) -> Table:
    """A table of texts, which go on in the next line."""
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=bool(names))
    for name in names:
        table.add_column(name, overflow="fold")
    return table
