"""`memos bench cluster`: what it takes, and what it prints."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.bench.reports import Seed, print_table, report_of_cpu
from memos.errors import how_to_install
from memos.interface.doors.cli.shared import Json

commands = typer.Typer()
_COLUMNS = ("jobs", "lost", "published_twice", "orphans", "begun_again", "revocation_p99_ms", "leaks")


@commands.command("cluster")
def bench_cluster(
    json: Json = None,
    workers: Annotated[int, typer.Option(min=1, help="processes that do jobs, and as many that serve")] = 4,
    kills: Annotated[int, typer.Option(min=1, help="of workers, at random times")] = 20,
    database_kills: Annotated[
        int | None, typer.Option(min=0, help="of the database's server; a tenth of those of workers if not given")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="rights taken back, memories deleted, users forgotten")] = 45,
    server_kills: Annotated[int, typer.Option(min=0, help="of serving processes, in as many of these rounds")] = 9,
    seed: Seed = 0,
) -> None:
    """Kill workers that share the jobs of a vault, and see how soon a memory is gone from every serving process."""
    from memos.bench.cluster.bench import bench_cluster as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu(
        "cluster", json, seed, lambda show: measure(workers, kills, database_kills, rounds, server_kills, seed, show)
    )
    print(report["executor"])
    print_table(rows_table(report | {"rows": [{name: report[name] for name in _COLUMNS}]}))
    for name, where in (("speedup", "here"), ("speedup_simulated", "with a core each, and one for the database")):
        speeds = ", ".join(f"{n} workers {times:.2f} times one" for n, times in report[name].items())
        print(f"jobs a second {where}: {speeds or how_to_install('fleet')}")
    for problem in (*report["failed"], *report["problems"]):
        print(problem)
