"""`memos run` and `memos quickstart`: an experiment from YAML, with its tables and its plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Output, Set, command
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from memos.plugins.experiment.report import RunReport

QUICKSTART = Path(__file__).parent / "quickstart/quickstart.yaml"
Out = Annotated[Path | None, typer.Option(help="folder for report.json, report.png and the vault")]
Fresh = Annotated[bool, typer.Option("--fresh", help="begin anew instead of going on with an interrupted run")]

commands = typer.Typer()


@command(commands)
def run(
    config: Annotated[Path, typer.Argument(help="YAML of the experiment")],
    set_: Set = None,
    out: Out = None,
    fresh: Fresh = False,
) -> Output:
    """Run the steps of an experiment and report what each form of memory cost and gave."""
    return _experiment(config, set_, out, fresh)


@command(commands)
def quickstart(set_: Set = None, out: Out = None, fresh: Fresh = False) -> Output:
    """Run the experiment inside the package: one conversation, remembered as text, as KV cache and as LoRA."""
    return _experiment(QUICKSTART, set_, out, fresh)


def _experiment(config: Path, set_: list[str] | None, out: Path | None, fresh: bool) -> Output:
    from memos.plugins.experiment.config import load_run
    from memos.plugins.experiment.experiment import Experiment
    from memos.plugins.experiment.report import plot

    settings = load_run(config, tuple(set_ or ()))
    out = out or Path("out") / settings.experiment.name
    with progress_bars() as show:
        report = Experiment(settings, out, show).run(fresh)
    plot(report, out / "report.png")
    return Output(report, _summary(report, out, settings.vault.path or out / "vault"))


def _summary(report: RunReport, out: Path, vault: Path) -> Iterator[object]:
    from memos.plugins.experiment.report import phases_table, promotions_table, remarks

    yield phases_table(report)
    if report["promotions"]:
        yield promotions_table(report)
    yield from remarks(report)
    if parity := report["parity"]:
        yield (
            f"KV against the full prompt: logits differ by at most {parity['max_abs_logit_diff']:.1e}, "
            f"top-1 agreement {parity['top1_agreement']:.3f}"
        )
    yield f"report: {out / 'report.json'}, {out / 'report.png'}"
    yield f"look at the memories: memos ls --vault {vault}; talk with them: memos chat --vault {vault}"
