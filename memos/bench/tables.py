"""Prints and plots the reports of benchmarks; knows their shapes, not what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from memos.plugins.figures import size, table_of


def levels_table(report: dict[str, Any]) -> Table:
    """How faithful each level is to the full prompt, and what it costs."""
    columns = ("cubes", "level", "recomputed", "work", "KL", "top-1", "same answer", "right", "TTFT p50")
    table = table_of(f"composed KV of {report['model']['path']} on {report['device']}", *columns)
    for r in [*report["levels"], *({"level": "naive", **row} for row in report["naive"])]:
        table.add_row(
            str(r["n_cubes"]), r["level"], f"{r['recompute']:.2f}", f"{r['operations']:.2f}", f"{r['kl']:.4f}",
            f"{r['top1_agreement']:.2f}", f"{r['decision_agreement']:.2f}", f"{r['accuracy']:.2f}",
            f"{r['ttft_ms']:.1f} ms",
        )  # fmt: skip
    return table


def ttft_table(report: dict[str, Any]) -> Table:
    """Time to the first token, in ms."""
    columns = ("context", "query", "tier", "full", "reuse", "ours", "floor", "saved", "pays after")
    table = table_of(f"TTFT in ms of {report['model']['path']} on {report['device']}", *columns)
    for r in report["rows"]:
        times = (f"{r[name]:.0f}" for name in ("full_ms", "reuse_ms", "ours_ms", "floor_ms"))
        table.add_row(
            str(r["context"]),
            str(r["query"]),
            r["tier"],
            *times,
            f"{r['saved']:.1%}",
            f"{r['break_even']:.1f} uses" if r["break_even"] else "never",
        )
    if left_out := report.get("left_out"):
        table.caption = (
            f"no room in the model's context: {', '.join('{context}+{query}'.format(**r) for r in left_out)}"
        )
    return table


def kv_io_table(report: dict[str, Any]) -> Table:
    """Rates of each tier and codec."""
    title = f"KV of {report['tokens']} tokens, {size(report['bytes'])}; fork {report['fork_ms']:.3f} ms"
    table = table_of(title, "tier", "codec", "load", "of a raw read", "save", "KL")
    for r in report["rows"]:
        table.add_row(
            r["tier"], r["codec"], f"{r['mb_s']:.0f} MB/s", f"{r['share_of_raw']:.2f}", f"{r['save_mb_s']:.0f} MB/s",
            f"{r['fidelity_kl']:.2g}",
        )  # fmt: skip
    return table


def verdicts_table(report: dict[str, Any]) -> Table:
    """What the KV of a model can be used for."""
    table = _folding("", "model", "attention", "verdict", "answers", "differences of logits")
    for r in report["models"]:
        differences = ", ".join(f"{k} {v:.1e}" for k, v in r["differences"].items())
        answers = "many at once" if r["together"] else "one at a time"
        table.add_row(r["name"], r["attention"], r["verdict"], answers, differences)
    return table


def architectures_table(report: dict[str, Any]) -> Table:
    """What the KV of each architecture can be used for, and whether all that was answered was right."""
    rows = report["rows"]
    title = (
        f"transformers {report['transformers']}: {len(rows)} architectures, {sum(r['checks'] for r in rows):,} checks, "
        f"{sum(r['silently_wrong'] for r in rows)} silently wrong; {len(report['unmade'])} could not be made small"
    )
    table = _folding(title, "architecture", "attention", "verdict", "exact", "composed", "wrong", "why")
    for r in rows:
        exact, composed = ("" if r[name] is None else f"{r[name]:.0e}" for name in ("exact_diff", "composed_diff"))
        wrong = "; ".join(r["wrong"]) or "0"
        table.add_row(r["architecture"], r["attention"], r["verdict"], exact, composed, wrong, r["why"])
    return table


def _folding(title: str, *names: str) -> Table:
    """A table of texts, which go on in the next line."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def choice_table(report: dict[str, Any]) -> Table:
    """What was chosen, and how often that was right."""
    columns = ("place", "codec", "memory", "question", "chosen", "best", "chosen ms", "best ms", "full ms")
    title = (
        f"choice on {report['model']['path']}, {report['device']}: right in {report['right']:.1%} of {report['cases']} "
        f"cases; at most {report['slower_than_full']:.1%} slower than the full prompt"
    )
    table = table_of(title, *columns)
    for r in report["rows"]:
        times = (f"{r[name]:.1f}" for name in ("chosen_ms", "best_ms", "full_ms"))
        table.add_row(r["place"], r["codec"], str(r["memory"]), str(r["question"]), r["chosen"], r["best"], *times)
    return table


def adapters_table(report: dict[str, Any]) -> Table:
    """What different adapters in one batch cost."""
    title = (
        f"{report['batch']} requests in a batch on {report['model']['path']}, {report['device']}; another adapter is "
        f"active in {report['switch_ms']:.1f} ms from its files, {report['switch_in_memory_ms']:.2f} ms from memory"
    )
    table = table_of(title, "known", "distinct", "ms", "new mix ms", "base ms", "times")
    for r in report["rows"]:
        times = (*(f"{r[name]:.1f}" for name in ("ms", "new_mix_ms", "base_ms")), f"{r['ms'] / r['base_ms']:.2f}")
        table.add_row(str(r["known"]), str(r["distinct_in_batch"]), *times)
    return table


def scores_table(report: dict[str, Any], *keys: str) -> Table:
    """Scores of adapters by what they were made with."""
    names = (
        "reliability",
        "generality",
        "locality",
        "in_context",
        "routed_top1",
        "none_right",
        "seconds",
        "accepted_rate",
    )
    shown = [name for name in names if any(name in row for row in report["rows"])]
    table = table_of(f"{report['bench']} on {report['model']['path']}, {report['device']}", *keys, *shown)
    for row in report["rows"]:
        cells = (
            f"{row[name]:.1f}" if name == "seconds" else f"{row[name]:.3f}" if name in row else "" for name in shown
        )
        table.add_row(*(str(row[key]) for key in keys), *cells)
    return table


def conversations_table(report: dict[str, Any]) -> Table:
    """How much of the evidence is found, by kind of question."""
    names = ("recall@10", "recall@budget", "ndcg@10")
    title = f"{report['questions']} questions about {report['turns']} turns of {report['data']}, {report['door']}"
    table = table_of(title, "kind", "questions", *names)
    for kind, row in [*report["by_kind"].items(), ("all", report)]:
        table.add_row(kind, str(row["questions"]), *(f"{row[name]:.3f}" for name in names))
    return table


def rows_table(report: dict[str, Any]) -> Table:
    """The rows of a benchmark as they are."""
    shown = [name for name, value in report["rows"][0].items() if isinstance(value, (int, float, str))]
    table = table_of(f"{report['bench']} on {report['device']}", *shown)
    for row in report["rows"]:
        table.add_row(*(_cell(row[name]) for name in shown))
    return table


def failures_table(report: dict[str, Any]) -> Table:
    """The cases of a benchmark that came out otherwise than they should."""
    table = table_of("cases that came out otherwise", "language", "kind", "said", "then", "wanted", "out")
    for case in report["failures"]:
        listed = (", ".join(map(str, case[name])) or "none" for name in ("wanted", "out"))
        table.add_row(case["language"], case["kind"], " ".join(case["said"]), case["then"], *listed)
    return table


def _cell(value: float | str | None) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:,.3f}"
        case int():
            return f"{value:,}"
        case _:
            return value


def forms_table(report: dict[str, Any]) -> Table:
    """What each form of memory takes, by the tokens of memory."""
    title = f"forms of memory of {report['model']['path']} on {report['device']}"
    table = table_of(title, "memory", "form", "tier", "level", "TTFT", "bytes", "pays after", "from a day")
    for r in report["rows"]:
        pays = ("", "") if r["form"] == "text" else ("never", "never")
        if r["break_even"] is not None:
            pays = f"{r['break_even']:,.1f} uses", f"{r['per_day']:,.1f}"
        room = size(r["bytes"]) if r["bytes"] else ""
        table.add_row(f"{r['context']:,}", r["form"], r["tier"], r["level"], f"{r['ttft_ms']:,.1f} ms", room, *pays)
    return table


def best_table(report: dict[str, Any]) -> Table:
    """The form that takes least time a day, by tokens of memory and questions a day about the same memories."""
    best = {(r["context"], r["questions"]): r["form"] for r in report["best"]}
    rates = list(dict.fromkeys(rate for _, rate in best))
    table = table_of("least time, by questions a day", "memory", *(f"{rate:,}" for rate in rates))
    for context in dict.fromkeys(context for context, _ in best):
        table.add_row(f"{context:,}", *(best[context, rate] for rate in rates))
    return table


def simulation_table(report: dict[str, Any]) -> Table:
    """What each policy comes to on each trace, beside Belady's optimum."""
    title = (
        "hits: share of tokens whose KV was in memory; TTFT: how much of it that saved;\n"
        "fetched: KV brought ahead, and the share of it that was used"
    )
    table = table_of(title, "trace", "room", "policy", "hits", "of Belady", "TTFT", "moved", "fetched", "used")
    for r in report["rows"]:
        fetched = (f"{r['prefetched']:,}", f"{r['prefetch_hit_rate']:.0%}") if r["prefetched"] else ("", "")
        table.add_row(
            r["trace"], f"{r['share']:.0%}", r["policy"], f"{r['hit_rate']:.3f}", f"{r['of_belady']:.3f}",
            f"{r['ttft_saved']:.1%}", size(r["bytes_moved"]), *fetched,
        )  # fmt: skip
    return table


def plot_simulation(report: dict[str, Any], path: Path) -> None:
    """Hit rates of the policies, a panel for each trace and share, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")  # no screen needed
    from matplotlib import pyplot

    panels: dict[str, list[dict[str, Any]]] = {}
    for row in report["rows"]:
        panels.setdefault(f"{row['trace']}, room for {row['share']:.0%}", []).append(row)
    most = max(len(rows) for rows in panels.values())
    figure, grid = pyplot.subplots(
        1, len(panels), figsize=(3.2 * len(panels), 0.4 * most + 1.4), sharey=True, squeeze=False
    )
    for axis, (title, rows) in zip(grid[0], panels.items(), strict=True):
        axis.barh([r["policy"] for r in rows], [r["hit_rate"] for r in rows], color="#3b6ea5")
        bound = rows[0]["hit_rate"] / rows[0]["of_belady"] if rows[0]["of_belady"] else 0.0
        axis.axvline(bound, color="#b5542b", linestyle="--", linewidth=1)
        axis.set(title=title, xlabel="hit rate; dashed: Belady", xlim=(0, 1))
        axis.spines[["top", "right"]].set_visible(False)
    grid[0][0].invert_yaxis()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
