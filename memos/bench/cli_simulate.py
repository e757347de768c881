"""`memos simulate`: which KV stays in memory, by traces; and how many processes and machines users need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from memos.bench.reports import print_table
from memos.interface.doors.cli.shared import Json
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from typer._click.core import Context


class Simulations(TyperGroup):
    """Takes `memos simulate zipf` for `memos simulate caches zipf`."""

    default = "caches"

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        is_named = bool(args) and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if is_named else [self.default, *args])


simulations = typer.Typer(
    cls=Simulations,
    help="Replay traces of what is used against policies that say which KV stays in memory (caches), or plan the "
    "processes and machines that users need (fleet). Without a name: caches.",
)


@simulations.command()
def caches(
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
    from memos.bench import write_report
    from memos.bench.simulate import POLICIES
    from memos.bench.simulate import simulate as replay
    from memos.bench.tables import plot_simulation, simulation_table
    from memos.bench.traces import GENERATED

    names = traces or list(GENERATED)
    with progress_bars() as show:
        figures = replay(names, policy or list(POLICIES), share or [0.1], prefetch, seed, record, show)
    report = write_report("simulate", seed, "cpu", figures, json)
    if plot:
        plot_simulation(report, plot)
    print_table(simulation_table(report))


@simulations.command()
def fleet(
    users: Annotated[list[int] | None, typer.Option(min=1, help="may be given again; 10^3, 10^5 and 10^6")] = None,
    exchanges_a_day: Annotated[float, typer.Option(min=0.001, help="of a user: a message and its answer")] = 10.0,
    peak: Annotated[float, typer.Option(min=1, help="calls in the busiest time over their mean")] = 3.0,
    days: Annotated[float, typer.Option(min=0.01, help="for which memories are kept")] = 365.0,
    memories: Annotated[float, typer.Option(min=0, help="that an exchange leaves, as both of its turns")] = 2.0,
    kv_mib: Annotated[float, typer.Option(min=0, help="of KV files and adapters of a user, in the bucket")] = 0.0,
    p95_ms: Annotated[float, typer.Option(min=1, help="within which 95 of 100 chats are to be answered")] = 2000.0,
    cores: Annotated[int, typer.Option(min=1, help="of a machine")] = 16,
    gib: Annotated[float, typer.Option(min=2, help="of its memory")] = 64.0,
    spare: Annotated[int, typer.Option(min=0, help="servers of a vault beyond those that the load needs")] = 1,
    core_hour: Annotated[float, typer.Option(min=0, help="price of a core for an hour")] = 0.04,
    gib_hour: Annotated[float, typer.Option(min=0, help="price of a GiB of memory for an hour")] = 0.005,
    disk_gib_month: Annotated[float, typer.Option(min=0, help="price of a GiB of the database")] = 0.1,
    bucket_gib_month: Annotated[float, typer.Option(min=0, help="price of a GiB in the bucket")] = 0.023,
    costs: Annotated[Path | None, typer.Option(help="of calls: a report of --measure; default: memos-small's")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="measure costs first, and 1, 2 and 4 processes")] = False,
    processes: Annotated[list[int] | None, typer.Option(min=1, help="with --measure; may be given again")] = None,
    clients: Annotated[int, typer.Option(min=2, help="with --measure: that call at once")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="with --measure: of each measurement")] = 8.0,
    seed: Annotated[int, typer.Option(help="of what is drawn at random")] = 0,
    json: Json = None,
) -> None:
    """Plan the vaults, processes, bytes and money for numbers of users, by a simulation of queues; with --measure it is
    held against processes that run here."""
    from memos.bench import write_report
    from memos.bench.fleet.costs import SHIPPED, FleetCosts, read_costs
    from memos.bench.fleet.measure import measure as run
    from memos.bench.fleet.plan import Demand, Offer, plans
    from memos.bench.fleet.tables import plans_table, runs_table

    demand = Demand(
        **{"exchanges_a_day": exchanges_a_day, "peak": peak, "days": days, "memories": memories, "p95_ms": p95_ms},
        kv_bytes=kv_mib * (1 << 20),
    )
    prices = {"core_hour": core_hour, "gib_hour": gib_hour, "disk_gib_month": disk_gib_month}
    offer = Offer(cores=cores, gib=gib, spare=spare, bucket_gib_month=bucket_gib_month, **prices)
    with progress_bars() as show:
        measured = run(demand.calls, processes or (1, 2, 4), clients, seconds, seed, show) if measure else {}
        known = FleetCosts.model_validate(measured["costs"]) if measured else read_costs(costs or SHIPPED)
        given = {"demand": demand.model_dump(), "offer": offer.model_dump(), "costs": known.model_dump(), **measured}
        if measured:
            print_table(runs_table(write_report("simulate fleet", seed, "cpu", given, json)))
            print(f"predicted within {measured['max_error']:.0%} at most, {measured['mean_error']:.0%} in the mean")
        made = plans(users or (10**3, 10**5, 10**6), demand, offer, known, seed, show)
    print_table(plans_table(write_report("simulate fleet", seed, "cpu", {**given, "plans": made}, json)))
