"""The commands `memos bench`, `calibrate`, `doctor`, `recommend` and `simulate`; knows no measuring."""

from __future__ import annotations

from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from memos.bench.cli_forms import forms
from memos.bench.cli_simulate import simulations
from memos.bench.cluster.cli import commands as cluster
from memos.bench.qa.cli import commands as answers
from memos.bench.reports import Dialogues, Model, Seed, print_table, report_of_cpu, report_of_model
from memos.errors import InputError
from memos.interface.doors.cli.shared import ConfigFile, Json, Set, made, settings_of
from memos.plugins.progress import progress_bars

commands = typer.Typer()
bench = typer.Typer(help="Measure memos against a named alternative, in one run.", no_args_is_help=True)
bench.add_typer(answers)
commands.add_typer(bench, name="bench")
commands.add_typer(simulations, name="simulate")
bench.add_typer(forms)
bench.add_typer(cluster)
if find_spec("memos.bench.developer"):  # in a checkout: the wheel leaves them out
    from memos.bench.developer.cli import developer

    bench.add_typer(developer)
Door = Enum("Door", {"memory": "memory", "http": "http", "mcp": "mcp"})


@bench.command("compose")
def bench_compose(
    json: Json = None,
    model: Model = "memos-small",
    questions: Annotated[int, typer.Option(min=1, help="for each number of cubes")] = 80,
    seed: Seed = 0,
) -> None:
    """N cubes in front of a question at each fidelity level, against the full prompt."""
    from memos.bench.compose import bench_compose as measure
    from memos.bench.tables import levels_table

    report = report_of_model("compose", json, model, seed, lambda host, show: measure(host, questions, seed, show))
    print_table(levels_table(report))


@bench.command("ttft")
def bench_ttft(
    json: Json = None,
    model: Model = "shape:cpu-126m",
    context: Annotated[list[int] | None, typer.Option(help="tokens of memory; may be given again")] = None,
    query: Annotated[list[int] | None, typer.Option(help="tokens of question; may be given again")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 3,
    seed: Seed = 0,
) -> None:
    """Time to the first token over a memory: read as text, reused by transformers, kept by memos."""
    from memos.bench.tables import ttft_table
    from memos.bench.ttft import CONTEXTS, QUERIES
    from memos.bench.ttft import bench_ttft as measure

    report = report_of_model(
        *("ttft", json, model, seed),
        lambda host, show: measure(host, context or CONTEXTS, query or QUERIES, repeats, seed, show),
    )
    print_table(ttft_table(report))


@bench.command("kv-io")
def bench_kv_io(
    json: Json = None,
    model: Model = "shape:cpu-126m",
    tokens: Annotated[int, typer.Option(min=64, help="length of the cache")] = 4096,
    blobs: Annotated[str | None, typer.Option(help="also from a bucket, as vault.blobs names it")] = None,
    seed: Seed = 0,
) -> None:
    """Fork, save and load of a KV cache, as a share of a raw read of the same file in the same run."""
    from memos.bench.kv_io import bench_kv_io as measure
    from memos.bench.tables import kv_io_table

    report = report_of_model("kv-io", json, model, seed, lambda host, show: measure(host, tokens, seed, show, blobs))
    print_table(kv_io_table(report))


@bench.command("choice")
def bench_choice(
    json: Json = None,
    model: Model = "memos-small",
    cases: Annotated[int, typer.Option(min=1, help="drawn at random")] = 60,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 5,
    seed: Seed = 0,
) -> None:
    """The scheduler's choice between text, KV from a tier and recompute, against the measured best."""
    from memos.bench.choice import bench_choice as measure
    from memos.bench.tables import choice_table

    report = report_of_model("choice", json, model, seed, lambda host, show: measure(host, cases, repeats, seed, show))
    print_table(choice_table(report))


@bench.command("adapters")
def bench_adapters(
    json: Json = None,
    model: Model = "memos-small",
    known: Annotated[list[int] | None, typer.Option(min=1, help="adapters there are; may be given again")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="of which the median counts")] = 7,
    seed: Seed = 0,
) -> None:
    """Many adapters in one batch of 8 requests, against the same batch of the base model."""
    from memos.bench.adapters import KNOWN
    from memos.bench.adapters import bench_adapters as measure
    from memos.bench.tables import adapters_table

    report = report_of_model(
        "adapters", json, model, seed, lambda host, show: measure(host, known or KNOWN, repeats, seed, show)
    )
    print_table(adapters_table(report))


@bench.command("promote")
def bench_promote(
    json: Json = None,
    model: Model = "memos-small",
    facts: Annotated[list[int] | None, typer.Option(min=1, help="of an adapter; may be given again")] = None,
    people: Annotated[list[int] | None, typer.Option(min=1, help="whom they are about; may be given again")] = None,
    objective: Annotated[list[str] | None, typer.Option(help="of those in the report; may be given again")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each kind, whose mean counts")] = 2,
    seed: Seed = 0,
) -> None:
    """Adapters by objective and number of facts: recall, what was kept, seconds, bytes, and whether the gate passes."""
    from memos.bench.promote import FACTS, OBJECTIVES, PEOPLE
    from memos.bench.promote import bench_promote as measure
    from memos.bench.tables import scores_table

    if wrong := set(objective or ()) - set(OBJECTIVES):
        raise InputError(f"no objective {', '.join(sorted(wrong))}; there are {', '.join(OBJECTIVES)}")
    report = report_of_model(
        *("promote", json, model, seed),
        lambda host, show: measure(host, facts or FACTS, people or PEOPLE, objective or OBJECTIVES, seeds, seed, show),
    )
    print_table(scores_table(report, "objective", "facts", "people"))


@bench.command("stack")
def bench_stack(
    json: Json = None,
    model: Model = "memos-small",
    n: Annotated[list[int] | None, typer.Option("--n", min=1, help="adapters at once; may be given again")] = None,
    facts: Annotated[int, typer.Option(min=1, help="of each adapter")] = 4,
    seed: Seed = 0,
) -> None:
    """Several adapters at once, by how they are put together."""
    from memos.bench.stack import SIZES
    from memos.bench.stack import bench_stack as measure
    from memos.bench.tables import scores_table

    report = report_of_model(
        "stack", json, model, seed, lambda host, show: measure(host, n or SIZES, facts, seed, show)
    )
    print_table(scores_table(report, "method", "n"))


@bench.command("conversations")
def bench_conversations(
    kind: Annotated[Dialogues, typer.Option("--set", help="whose dialogues")],
    data: Annotated[Path, typer.Option("--data", help="a file of them")],
    json: Json = None,
    door: Annotated[Door, typer.Option(help="through which they are added and searched")] = Door.memory,
    policy: Annotated[str | None, typer.Option(help="what finds; default: the config's")] = None,
    turns: Annotated[
        int | None, typer.Option(min=1, help="instead: what one user's calls take, who says so many over the years")
    ] = None,
) -> None:
    """What is kept of long dialogues, and which turns search finds for a question, through the public calls."""
    from memos.bench.conversations import bench_conversations as measure
    from memos.bench.conversations import bench_growth
    from memos.bench.tables import conversations_table, rows_table

    if turns is not None:
        report = report_of_cpu(
            "growth", json, 0, lambda show: bench_growth(kind.value, data, door.value, policy, turns, show)
        )
        print_table(rows_table(report))
        return
    report = report_of_cpu("conversations", json, 0, lambda show: measure(kind.value, data, door.value, policy, show))
    print_table(conversations_table(report))


@bench.command("arena")
def bench_arena(
    kind: Annotated[Dialogues, typer.Option("--set", help="whose dialogues")],
    data: Annotated[Path, typer.Option("--data", help="a file of them")],
    json: Json = None,
    systems: Annotated[str, typer.Option(help="policies, with commas between them, or all")] = "all",
    conversations: Annotated[int | None, typer.Option(min=1, help="only so many, the first of the file")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML with other settings, the same for all")] = None,
    writer: Annotated[str, typer.Option(help="rules, local, or a URL: curators.writer")] = "rules",
    page: Annotated[Path | None, typer.Option(help="write the table into a page, and a plot beside it")] = None,
) -> None:
    """Every memory system on the same turns, questions and budget; goes on where it was cut off."""
    from memos.bench.arena import bench_arena as measure
    from memos.bench.arena import named_systems
    from memos.bench.arena_report import arena_page, arena_table

    settings, names = settings_of(config, [f"curators.writer={writer}"]), named_systems(systems)
    partial = json.with_name(f"{json.name}.part") if json else None
    report = report_of_cpu(
        "arena", json, 0, lambda show: measure(names, kind.value, data, conversations, settings, partial, show)
    )
    print_table(arena_table(report))
    if page is not None:
        arena_page([report], page)


@bench.command("search")
def bench_search(
    json: Json = None,
    cubes: Annotated[list[int] | None, typer.Option("--cubes", min=100, help="memories; may be given again")] = None,
    queries: Annotated[int, typer.Option(min=2, help="of each user")] = 200,
    seed: Seed = 0,
) -> None:
    """How long a search takes beside the embedding of its query, and how exact it is, by the number of memories."""
    from memos.bench.search import bench_search as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu("search", json, seed, lambda show: measure(cubes or [100_000], queries, seed, show))
    print_table(rows_table(report))


@bench.command("scheduler")
def bench_scheduler(
    json: Json = None,
    cubes: Annotated[list[int] | None, typer.Option("--cubes", min=100, help="memories; may be given again")] = None,
    requests: Annotated[int, typer.Option(min=2, help="decisions that are timed")] = 500,
    model: Model = "memos-small",
    seed: Seed = 0,
) -> None:
    """How long it takes to decide what a request sees, by the number of memories."""
    from memos.bench.scheduler import bench_scheduler as measure
    from memos.bench.tables import rows_table

    report = report_of_cpu(
        "scheduler", json, seed, lambda show: measure(cubes or [100_000], model, requests, seed, show)
    )
    print_table(rows_table(report))


@bench.command("updates")
def bench_updates(
    json: Json = None,
    model: Model = "memos-small",
    facts: Annotated[int, typer.Option(min=1, max=180, help="stated at first")] = 50,
    updates: Annotated[int, typer.Option(min=0, help="changes to them")] = 200,
    small_talk: Annotated[int, typer.Option(min=0, help="turns between that state nothing")] = 100,
    seed: Seed = 0,
) -> None:
    """What the model answers after facts have changed many times, against keeping everything that was said."""
    from memos.bench.tables import rows_table
    from memos.bench.updates import bench_updates as measure
    from memos.config import Config, ModelConfig

    config = Config(model=ModelConfig(path=model))
    report = report_of_cpu("updates", json, seed, lambda show: measure(config, facts, updates, small_talk, seed, show))
    print_table(rows_table(report))


@bench.command("vault")
def bench_vault(
    json: Json = None,
    cubes: Annotated[int, typer.Option(min=1, help="memories in the vault")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="in which the vault and bare sqlite3 take turns")] = 15,
    reads: Annotated[int, typer.Option(min=1, help="of one memory each")] = 5000,
    seed: Seed = 0,
) -> None:
    """Durable adds and reads through the vault, beside bare sqlite3 with the same rows and the same durability."""
    from memos.bench.tables import rows_table
    from memos.bench.vault import bench_vault as measure

    report = report_of_cpu("vault", json, seed, lambda show: measure(cubes, rounds, reads, seed, show))
    print_table(rows_table(report))
    print(f"a memory by its id in {report['read_us_p50']:.0f} us (p50), among {cubes:,}")


@bench.command("serve")
def bench_serve(
    json: Json = None,
    clients: Annotated[int, typer.Option(min=1, help="each with a key of its own")] = 64,
    seconds: Annotated[float, typer.Option(min=1, help="of load")] = 60,
    seed: Seed = 0,
) -> None:
    """A server under clients that add, search and chat; what the door costs; whether what it acknowledged is kept."""
    from memos.bench import write_report
    from memos.bench.serve import bench_serve as measure
    from memos.bench.tables import rows_table

    with progress_bars() as show:
        report = write_report("serve", seed, "cpu", measure(clients, seconds, seed, show), json)
    print_table(rows_table(report))
    print(
        f"{report['requests']} requests, {report['errors']} errors, {report['rejected_429']} rejected, "
        f"{report['lost_writes']} of {report['acknowledged_adds']} writes lost; the door costs "
        f"{report['door_overhead_ms_p50']:.1f} ms (p50), memory grew by {report['rss_growth']:.1%}"
    )


@commands.command()
def calibrate(
    config: ConfigFile = None,
    set_: Set = None,
    vault: Annotated[Path | None, typer.Option("--vault", help="folder of the vault that keeps the card")] = None,
    json: Json = None,
    questions: Annotated[int, typer.Option(min=1, help="for each number of cubes")] = 40,
    seed: Seed = 0,
) -> None:
    """Measure the fidelity levels on this model; `fidelity.level: auto` goes by the card from then on."""
    from memos.bench import write_report
    from memos.bench.calibrate import calibrate as measure
    from memos.bench.tables import levels_table

    with made(vault, config, set_) as kernel, progress_bars() as show:
        card = measure(kernel, questions, seed, show)
    report = write_report("calibrate", seed, card["model"]["device"], card, json)
    print_table(levels_table(report))
    chosen = report["chosen"]
    print(f"fidelity.level {kernel.config.fidelity.level} comes to {chosen['level']} in {kernel.vault.path}")


@commands.command()
def doctor(
    architectures: Annotated[
        bool, typer.Option("--architectures", help="of a tiny random model of every architecture; some minutes")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="with --architectures: this one alone; may be given again")
    ] = None,
    json: Json = None,
    model: Model = "memos-small",
    attention: Annotated[str, typer.Option(help="as model.attention: auto, sdpa or eager")] = "auto",
    dtype: Annotated[str, typer.Option(help="as model.dtype: auto, float32, bfloat16 or float16")] = "auto",
    device: Annotated[str, typer.Option(help="as model.device: auto, cpu or cuda")] = "auto",
) -> None:
    """Say what the model's KV can be used for, tried on its logits."""
    from memos.bench import write_report
    from memos.bench.doctor import examine_architectures, examine_model
    from memos.bench.tables import architectures_table, verdicts_table
    from memos.config import parse_config

    config = parse_config({"model": {"path": model, "attention": attention, "dtype": dtype, "device": device}}).model
    with progress_bars() as show:
        figures = examine_architectures(show, config, only or ()) if architectures else examine_model(config)
    report = write_report("doctor", 0, figures.pop("device"), figures, json)
    if not architectures:
        print_table(verdicts_table(report))
        return
    print_table(architectures_table(report))
    if any(row["silently_wrong"] for row in report["rows"]):
        raise typer.Exit(1)


@commands.command()
def recommend(
    json: Json = None,
    model: Model = "memos-small",
    out: Annotated[Path | None, typer.Option(help="write the settings that follow to this YAML")] = None,
    context: Annotated[list[int] | None, typer.Option(min=1, help="tokens of memory; may be given again")] = None,
    questions_per_day: Annotated[
        list[int] | None, typer.Option(min=1, help="about the same memories; may be given again")
    ] = None,
    questions: Annotated[int, typer.Option(min=1, help="by which each fidelity level is judged")] = 20,
    seed: Seed = 0,
) -> None:
    """Say which form of memory pays for a model on this machine, and write the settings that follow."""
    from memos.bench.recommend import CONTEXTS, RATES, bench_recommend
    from memos.bench.tables import best_table, forms_table

    report = report_of_model(
        *("recommend", json, model, seed),
        lambda host, show: bench_recommend(
            host, context or CONTEXTS, questions_per_day or RATES, questions, seed, show
        ),
    )
    print_table(forms_table(report))
    print_table(best_table(report))
    print(*report["sentences"], "", report["yaml"], sep="\n", end="")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report["yaml"], "utf-8")
