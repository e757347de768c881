"""Prints, plots and writes down the report of `memos bench arena`; knows its shape, not what is measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from memos.errors import InputError
from memos.plugins.figures import size, table_of

BEGIN, END = "<!-- arena -->", "<!-- end of arena -->"
_TABLE = re.compile(r"^### .*\n\n(?:\|.*\|(?:\n|$))+", re.MULTILINE)
COLUMNS = (
    ("system", "system"),
    ("recall@10", "recall@10"),
    ("recall@budget", "in the budget"),
    ("ndcg@10", "nDCG@10"),
    ("tokens_shown_mean", "tokens"),
    ("memories", "memories"),
    ("writer_calls_per_turn", "calls/turn"),
    ("writer_tokens_per_turn", "tokens/turn"),
    ("adds_per_s", "turns/s"),
    ("search_ms_p50", "search ms"),
    ("bytes", "size"),
    ("failed", "failed"),
)


def arena_table(report: dict[str, Any]) -> Table:
    """A row for each system."""
    table = table_of(_title(report), *(heading for _, heading in COLUMNS))
    for row in report["rows"]:
        table.add_row(*_cells(row))
    return table


def arena_page(reports: Sequence[dict[str, Any]], page: Path) -> None:
    """A table for each report, the best in the budget first, and a plot of the first beside the page. A page that has
    the marks of such tables keeps what stands around them, and tables of other sets. Raises InputError for another page
    that is there."""
    there = page.read_text("utf-8") if page.is_file() else f"# Memory systems compared\n\n{BEGIN}\n{END}\n"
    before, begin, rest = there.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise InputError(
            f"{page} is a page without {BEGIN} and {END}; put these where the tables belong, or name another"
        )
    plot = page.with_name(f"{page.stem}.png")
    page.parent.mkdir(parents=True, exist_ok=True)
    plot_arena(reports[0], plot)
    lines = [
        "Every system is a policy, chosen by one line of YAML, and was given the same turns by the public `add`, the "
        "same questions by the public `search`, the same embedder and the same writer. *recall@10*: share of a "
        "question's evidence among the first ten memories; *in the budget*: among as many as fit into "
        f"{reports[0]['budget']:,} tokens. A memory of n lines stands for the first n of the turns that it was made "
        "of. Made by `memos bench arena --page`; what differs from each paper stands in its file under "
        "`memos/plugins/policies/`.",
    ]
    kept = [
        table.rstrip()
        for table in _TABLE.findall(old)
        if not table.startswith(tuple(f"### {r['set']}:" for r in reports))
    ]
    for report in reports:
        lines += ["", f"### {_title(report)}", ""]
        lines += ["| " + " | ".join(heading for _, heading in COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
        ranked = sorted(report["rows"], key=lambda row: -row["recall@budget"])
        lines += ["| " + " | ".join(_cells(row)) + " |" for row in ranked]
    lines += ["", *"\n\n".join(kept).splitlines()] if kept else []
    lines += ["", f"![Evidence in the budget against what is written]({plot.name})"]
    page.write_text(f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}", "utf-8")


def plot_arena(report: dict[str, Any], path: Path) -> None:
    """Evidence found in the budget against the writer's tokens for each turn, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")  # no screen needed
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 5))
    for row in report["rows"]:
        place = (row["writer_tokens_per_turn"], row["recall@budget"])
        axis.plot(*place, "o", color="#3b6ea5")
        axis.annotate(row["system"], place, xytext=(4, 3), textcoords="offset points", fontsize=7)
    axis.set(title=_title(report), xlabel="tokens a writer is asked, for each turn", ylabel="evidence in the budget")
    axis.set_xscale("symlog")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _title(report: dict[str, Any]) -> str:
    count = report["conversations"]
    return (
        f"{report['set']}: {count} conversation{'s' if count != 1 else ''}, {report['questions']} questions, "
        f"writer {report['writer']}"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    cells = []
    for name, _ in COLUMNS:
        value = row[name]
        if name == "bytes":
            cells.append(size(value))
        elif isinstance(value, float):
            cells.append(f"{value:.3f}" if name.startswith(("recall", "ndcg")) else f"{value:,.1f}")
        else:
            cells.append(f"{value:,}" if isinstance(value, int) else str(value))
    return cells
