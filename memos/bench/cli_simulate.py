"""`memos simulate`: which KV each policy keeps in memory on a trace. A door; knows no policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.interface.doors.cli.shared import Json
from memos.interface.doors.progress import progress_bars


def simulate(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            help="zipf, drift, bursts, tenants (default: these), accesses.jsonl, or LoCoMo's dialogues.json"
        ),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="may be given again; default: all, and Belady's")] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(min=0.001, max=1, help="of the trace's KV that memory has room for; may be given again"),
    ] = None,
    prefetch: Annotated[
        float, typer.Option(min=0, help="most KV to bring after a request, in times of what a request uses in the mean")
    ] = 4.0,
    seed: Annotated[int, typer.Option(help="of what is drawn at random")] = 0,
    json: Json = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="draw the hit rates into this PNG")] = None,
    record: Annotated[Path | None, typer.Option("--record", help="write the traces to this folder as JSONL")] = None,
) -> None:
    """Replay traces of what is used against policies that say which KV stays in memory."""
    from rich.console import Console

    from memos.bench import write_report
    from memos.bench.simulate import POLICIES
    from memos.bench.simulate import simulate as replay
    from memos.bench.traces import GENERATED
    from memos.interface.doors.experiment.report import plot_simulation, simulation_table

    names = traces or list(GENERATED)
    with progress_bars() as show:
        figures = replay(names, policy or list(POLICIES), share or [0.1], prefetch, seed, record, show)
    report = write_report("simulate", seed, "cpu", figures, json)
    if plot:
        plot_simulation(report, plot)
    Console().print(simulation_table(report))
