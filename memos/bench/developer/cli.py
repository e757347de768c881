"""The benchmarks by which developers judge a change, as commands of `memos bench`; knows no measuring.

The wheel leaves this folder out; `memos bench` lists what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.bench.reports import Seed, print_table, report_of_cpu
from memos.interface.doors.cli.shared import Json

developer = typer.Typer()


@developer.command("supersession")
def bench_supersession(json: Json = None) -> None:
    """Which memories a new one puts out of force, against what a person says of it. No answer of a model."""
    from memos.bench.developer.supersession import bench_supersession as measure
    from memos.bench.tables import failures_table, rows_table

    report = report_of_cpu("supersession", json, 0, measure)
    print_table(rows_table(report))
    if report["failures"]:
        print_table(failures_table(report))


@developer.command("crash")
def bench_crash(
    json: Json = None,
    kills: Annotated[int, typer.Option(min=1, help="of a process with four threads that write")] = 20,
    cubes: Annotated[int, typer.Option(min=0, help="memories that are there before")] = 0,
    seed: Seed = 0,
) -> None:
    """Kill a process that writes, again and again, and look whether what it acknowledged is there."""
    from memos.bench.developer.crash import bench_crash as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu("crash", json, seed, lambda show: measure(kills, cubes, seed, show))
    columns = ("kills", "cubes", "acknowledged", "lost", "partial", "check_clean", "restart_s_max")
    print_table(rows_table(report | {"rows": [{name: report[name] for name in columns}]}))
    for problem in report["problems"]:
        print(problem)


@developer.command("redaction")
def bench_redaction(json: Json = None) -> None:
    """Which identifiers are found in sentences of English and Chinese, and what is taken for one."""
    from memos.bench.developer.redaction import bench_redaction as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu("redaction", json, 0, measure)
    print_table(rows_table(report))
    for failure in report["failures"]:
        print(f"{failure['text']}  missed {failure['missed']}, wrong {failure['wrong']}")


@developer.command("reader")
def bench_reader(
    json: Json = None,
    cases: Annotated[Path | None, typer.Option(help="a file of cases, in place of the held-out ones")] = None,
    extracted: Annotated[int, typer.Option(min=0, help="requests that two models extract within the grammar")] = 12,
    seed: Seed = 0,
) -> None:
    """What the reader makes of requests, in English and Chinese, against what a person wrote down."""
    from memos.bench.developer.reader import bench_reader as measure
    from memos.bench.tables import rows_table

    print_table(rows_table(report_of_cpu("reader", json, seed, lambda show: measure(show, cases, extracted))))


@developer.command("persona")
def bench_persona(
    json: Json = None,
    infer: Annotated[bool, typer.Option(help="read statements in what they say over the months")] = True,
    seed: Seed = 0,
) -> None:
    """What a memory of invented people finds, takes for changed, and does when asked. Typed as people type."""
    from memos.bench.developer.persona import bench_persona as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu("persona", json, seed, lambda show: measure(show, infer=infer))
    print_table(rows_table(report))
    for failure in report["failures"]:
        print(f"{failure['person']}, {failure['part']}: {' / '.join(failure['message'])}")
