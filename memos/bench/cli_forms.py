"""The commands `memos bench overlap`, `batch`, `moves` and `askable`; knows no measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.bench.reports import Dialogues, Model, Seed, print_table, report_of_cpu, report_of_model
from memos.errors import InputError
from memos.interface.doors.cli.shared import ConfigFile, Json, Set, settings_of

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


@forms.command("batch")
def bench_batch(
    json: Json = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="as elsewhere; may be given again")] = None,
    clients: Annotated[int, typer.Option(min=1, help="requests at once, at most")] = 64,
    tokens: Annotated[int, typer.Option(min=1, help="of each answer that is decoded for tokens a second")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 3,
    seed: Seed = 0,
) -> None:
    """Requests that share forwards against one by one: tokens a second, answers that differ, how long chats take."""
    from memos.bench.batch import MODELS
    from memos.bench.batch import bench_batch as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu(
        "batch", json, seed, lambda show: measure(model or MODELS, clients, tokens, repeats, seed, show)
    )
    print_table(rows_table(report))


@forms.command("moves")
def bench_moves(
    json: Json = None,
    model: Model = "memos-small",
    move: Annotated[list[str] | None, typer.Option(help="one of them; may be given again")] = None,
    groups: Annotated[int, typer.Option(min=1, help="of 16 facts each; fewer are trained, more composed")] = 16,
    seed: Seed = 0,
) -> None:
    """Every move between the forms of memory: how long it takes, what it keeps, what the gate lets pass."""
    from memos.bench.moves.bench import MOVES
    from memos.bench.moves.bench import bench_moves as measure
    from memos.bench.tables import rows_table

    if unknown := [name for name in move or () if name not in MOVES]:
        raise InputError(f"there is no move {', '.join(unknown)}; there are {', '.join(MOVES)}")
    report = report_of_model(
        *("moves", json, model, seed), lambda host, show: measure(host, move or list(MOVES), groups, seed, show)
    )
    print_table(rows_table(report))


@forms.command("askable")
def bench_askable(
    data: Annotated[Path, typer.Option("--data", help="a file of dialogues")],
    json: Json = None,
    kind: Annotated[Dialogues, typer.Option("--dialogues", help="whose they are")] = Dialogues.locomo,
    groups: Annotated[int, typer.Option(min=2, help="topic groups, drawn at random")] = 100,
    gate: Annotated[
        int, typer.Option(min=0, help="most groups that are promoted, of those that can be judged and of the others")
    ] = 2,
    config: ConfigFile = None,
    set_: Set = None,
    seed: Seed = 0,
) -> None:
    """How much of real conversations the gate of promotions can ask about, and what it does with the rest."""
    from memos.bench.moves.askable import bench_askable as measure
    from memos.bench.tables import rows_table

    settings = settings_of(config, set_)
    report = report_of_cpu(
        "askable", json, seed, lambda show: measure(kind.value, data, settings, groups, gate, seed, show)
    )
    print_table(rows_table(report))
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in report["outcomes"].items())
    typer.echo(f"promoted by the public call: {outcomes}")
