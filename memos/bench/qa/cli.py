"""`memos bench qa` and `compare`: what they take, and what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.bench.reports import Seed, print_table, report_of_cpu
from memos.errors import InputError
from memos.interface.doors.cli.shared import Json, settings_of

commands = typer.Typer()
Judge = Annotated[str | None, typer.Option(help="a model that judges the answers, once it has passed")]
Out = Annotated[Path | None, typer.Option(help="folder of the run, its answers and report.html")]
Conversations = Annotated[int | None, typer.Option(min=1, help="only so many, the first of the file")]
Questions = Annotated[int | None, typer.Option(min=1, help="only so many of each conversation, spread")]
Budget = Annotated[int, typer.Option(min=1, help="tokens of memories in front of a question")]
Key = Annotated[Path | None, typer.Option(help="audited errors of the key; both figures are shown")]
Exam = Annotated[Path | None, typer.Option(help="other cases for the judge's examination")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML with other settings")]
EndpointModel = Annotated[str, typer.Option(help="name of the model at a URL")]
Concurrent = Annotated[int, typer.Option(min=1, help="calls of a URL at once")]
Timeout = Annotated[float, typer.Option(min=0.1, help="seconds for one call of a URL")]
Context = Annotated[int | None, typer.Option(min=64, help="tokens that the model is given at most")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="most tokens that a URL is asked for, in all")]
MaxCost = Annotated[float | None, typer.Option(min=0, help="most that a URL may cost, in all, by --prices")]
Prices = Annotated[str, typer.Option(help="of a million tokens: read,written")]


@commands.command("qa")
def bench_qa(
    kind: Annotated[str, typer.Option("--set", help="locomo, beam, or a file of BEAM's form")],
    data: Annotated[Path | None, typer.Option("--data", help="the file of locomo or beam")] = None,
    model: Annotated[str, typer.Option(help="extractive, a folder, a hub name, memos-small, or a URL")] = "extractive",
    judge: Judge = None,
    systems: Annotated[str, typer.Option(help="policies beside the baselines, with commas between them")] = "",
    via: Annotated[str, typer.Option(help="forms, with commas: plaintext, activation, parametric, auto")] = "plaintext",
    out: Out = None,
    json: Json = None,
    conversations: Conversations = None,
    groups: Annotated[int, typer.Option(min=1, help="topic groups of a conversation that take a form")] = 8,
    questions: Questions = None,
    budget: Budget = 1600,
    key: Key = None,
    exam: Exam = None,
    config: ConfigFile = None,
    endpoint_model: EndpointModel = "default",
    concurrent: Concurrent = 8,
    timeout: Timeout = 120.0,
    context: Context = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    prices: Prices = "0,0",
    seed: Seed = 0,
) -> None:
    """How well questions are answered from what each system shows, beside the baselines; goes on where it was cut off.

    Always beside the systems: no memory, full context, plain retrieval, and the evidence itself.
    """
    from memos.bench.qa.answerers import EndpointLimits
    from memos.bench.qa.bench import Ask
    from memos.bench.qa.bench import bench_qa as measure
    from memos.bench.qa.tables import qa_tables

    limits = EndpointLimits(concurrent, timeout, max_tokens, max_cost, _prices(prices), endpoint_model)
    ask = Ask(
        kind=kind,
        data=data,
        model=model,
        judge=judge,
        systems=tuple(name.strip() for name in systems.split(",") if name.strip()),
        via=tuple(name.strip() for name in via.split(",") if name.strip()),
        out=out or (json.with_suffix(".qa") if json else Path("out") / "qa"),
        conversations=conversations,
        groups=groups,
        questions=questions,
        budget=budget,
        context=context,
        key=key,
        exam=exam,
        seed=seed,
    )
    report = report_of_cpu("qa", json, seed, lambda show: measure(ask, settings_of(config, None), limits, show))
    for table in qa_tables(report):
        print_table(table)
    if (examination := report["examination"]) and examination["why"]:
        print(f"no answer is judged: {examination['why']}")
    print(f"report: {ask.out / 'report.json'}, {ask.out / 'report.html'}; answers: {ask.out / 'answers'}")


def _prices(text: str) -> tuple[float, float]:
    try:
        read, written = (float(price) for price in text.split(","))
    except ValueError:
        raise InputError(f"--prices {text!r} are not two numbers; give those of a million tokens: 0.15,0.6") from None
    return read, written


@commands.command("paper")
def bench_paper(
    table: Annotated[Path, typer.Argument(help="YAML of a paper's table; configs/papers has six")],
    data: Annotated[Path, typer.Option("--data", help="the file of the set that the paper measures on")],
    model: Annotated[
        str, typer.Option(help="as of `memos bench qa`; default: extractive, of ttft shape:cpu-126m")
    ] = "",
    judge: Judge = None,
    out: Out = None,
    json: Json = None,
    conversations: Conversations = None,
    questions: Questions = None,
    budget: Budget = 1600,
    key: Key = None,
    exam: Exam = None,
    config: ConfigFile = None,
    endpoint_model: EndpointModel = "default",
    concurrent: Concurrent = 8,
    timeout: Timeout = 120.0,
    context: Context = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    prices: Prices = "0,0",
    seed: Seed = 0,
) -> None:
    """A table of a paper on one's own model, the published figures beside one's own; goes on where it was cut off."""
    from memos.bench.qa.answerers import EndpointLimits
    from memos.bench.qa.bench import Ask
    from memos.bench.qa.papers import bench_paper as measure
    from memos.bench.qa.papers import paper_tables, read_paper

    paper, folder = read_paper(table), out or (json.with_suffix(".qa") if json else Path("out") / table.stem)
    limits = EndpointLimits(concurrent, timeout, max_tokens, max_cost, _prices(prices), endpoint_model)
    ask = Ask("", data, model, judge, (), (), 8, folder, conversations, questions, budget, context, key, exam, seed)
    settings = settings_of(config, None)
    report = report_of_cpu("paper", json, seed, lambda show: measure(paper, ask, settings, limits, show))
    for one in paper_tables(paper, report):
        print_table(one)


@commands.command("compare")
def bench_compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="folder of a run, or its report.json")],
    b: Annotated[Path, typer.Argument(metavar="B", help="folder of another run, or its report.json")],
    json: Json = None,
    html: Annotated[Path | None, typer.Option(help="write a page with every question that flipped")] = None,
    seed: Seed = 0,
) -> None:
    """What changed between two runs of `memos bench qa`, and which questions flipped."""
    from memos.bench.qa.compare import compare, write_comparison
    from memos.bench.qa.tables import compare_tables

    comparison = report_of_cpu("compare", json, seed, lambda show: compare(a, b, seed, show))
    for table in compare_tables(comparison):
        print_table(table)
    if html:
        write_comparison(comparison, html)
        print(f"page: {html}")
