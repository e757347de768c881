"""What `memos simulate fleet` prints."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from memos.plugins.figures import table_of


def runs_table(report: dict[str, Any]) -> Table:
    """Predicted beside measured, for each number of processes."""
    table = table_of(
        "processes of one vault, measured and predicted",
        *("processes", "cores", "calls/s", "predicted", "error", "p50 ms", "predicted", "p95 ms", "predicted"),
    )
    for row in report["rows"]:
        table.add_row(
            *(str(row["processes"]), f"{row['cores']:.2f}"),
            *(f"{row['calls_a_second']:.1f}", f"{row['predicted_calls_a_second']:.1f}", f"{row['error']:+.0%}"),
            *(f"{row[name]:.0f}" for name in ("p50_ms", "predicted_p50_ms", "p95_ms", "predicted_p95_ms")),
        )
    return table


def plans_table(report: dict[str, Any]) -> Table:
    """What each number of users needs: a column for each."""
    plans = report["plans"]
    table = table_of("what they need", "users", *(f"{plan['users']:,}" for plan in plans))
    for name, shown in _ROWS.items():
        table.add_row(name.replace("_", " "), *(shown.format(plan[name]) for plan in plans))
    return table


_ROWS = {
    "vaults": "{:,}",
    "users_of_a_vault": "{:,}",
    "limited_by": "{}",
    "calls_a_second": "{:,.1f}",
    "servers": "{:,}",
    "workers": "{:,}",
    "gib_of_a_process": "{:,.1f}",
    "machines": "{:,}",
    "database_cores": "{:,}",
    "database_gib": "{:,.0f}",
    "chat_p50_ms": "{:,.0f}",
    "chat_p95_ms": "{:,.0f}",
    "cost_a_month": "{:,.0f}",
    "cost_of_a_user": "{:,.2f}",
}
