"""The commands `memos bench overlap` and `batches`; knows no measuring."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.bench.reports import Model, Seed, print_table, report_of_model
from memos.interface.doors.cli.shared import Json

forms = typer.Typer()


@forms.command("overlap")
def bench_overlap(
    json: Json = None,
    model: Model = "shape:cpu-126m",
    context: Annotated[list[int] | None, typer.Option(min=1, help="tokens of memory; may be given again")] = None,
    query: Annotated[int, typer.Option(min=1, help="tokens of question")] = 303,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 5,
    seed: Seed = 0,
) -> None:
    """How much of bringing KV hides behind the forward that it is for."""
    from memos.bench.overlap import CONTEXTS
    from memos.bench.overlap import bench_overlap as measure
    from memos.bench.tables import rows_table

    report = report_of_model(
        *("overlap", json, model, seed),
        lambda host, show: measure(host, context or CONTEXTS, query, repeats, seed, show),
    )
    print_table(rows_table(report))


@forms.command("batches")
def bench_batches(
    json: Json = None,
    model: Model = "memos-small",
    size: Annotated[list[int] | None, typer.Option(min=1, help="requests in a batch; may be given again")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 3,
    seed: Seed = 0,
) -> None:
    """Answers a second by the size of a batch, over text and over KV, each request with memories of its own."""
    from memos.bench.batches import SIZES
    from memos.bench.batches import bench_batches as measure
    from memos.bench.tables import rows_table

    report = report_of_model(
        "batches", json, model, seed, lambda host, show: measure(host, size or SIZES, repeats, seed, show)
    )
    print_table(rows_table(report))
