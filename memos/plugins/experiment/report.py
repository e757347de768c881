"""Shows what report.json holds as a table and as a picture; knows nothing of the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from rich.table import Table

from memos.plugins.figures import Surroundings, size, table_of

_SCORES = ("reliability", "generality", "locality", "in_context")


class QuestionReport(TypedDict, total=False):
    """One question. form: what it was answered from; why: the reason that it was not answered."""

    question: str
    expected: str
    answer: str
    form: str
    why: str


class ReadReport(TypedDict):
    """A file that was read. dropped: turns without words, of a role that says nothing, or that ask not to be kept."""

    file: str
    turns_kept: int
    turns_dropped: int
    memories: int


class PhaseReport(TypedDict):
    """The questions of one ask step, and what their answers cost."""

    via: str
    questions: int
    accuracy: float
    prompt_tokens_mean: float
    ttft_ms_p50: float
    bytes: int
    build_s: float
    replies: list[QuestionReport]


class PromotionReport(TypedDict, total=False):
    """One promotion: accepted with its size, or refused and why; with the scores of the gate."""

    to: str
    sources: list[str]
    accepted: bool
    seconds: float
    bytes: int
    why: str
    asked: str  # how many of the memories the scores tell of; "" for all
    reliability: float
    generality: float
    locality: float
    in_context: float


class ParityReport(TypedDict):
    """How far answers over KV are from those over the full prompt."""

    max_abs_logit_diff: float
    top1_agreement: float


class RunResults(TypedDict):
    """What the steps so far gave: a report that is not finished."""

    read: list[ReadReport]
    phases: list[PhaseReport]
    parity: ParityReport | None
    promotions: list[PromotionReport]
    moves: list[dict[str, object]]
    seconds: float


class RunReport(RunResults, Surroundings):
    """report.json. model: as the host describes it. stopped: why the run ended before its last step; "" where it did
    not."""

    name: str
    stopped: str
    finished: str
    model: dict[str, object]
    device: str
    seed: int


def phases_table(report: RunReport) -> Table:
    """What each form gave and cost."""
    columns = ("memory as", "questions", "accuracy", "prompt tokens", "TTFT p50", "bytes held", "build")
    table = table_of(f"{report['name']}: {report['model']['path']} on {report['device']}", *columns)
    for p in report["phases"]:
        table.add_row(
            p["via"], str(p["questions"]), f"{p['accuracy']:.2f}", f"{p['prompt_tokens_mean']:.1f}",
            f"{p['ttft_ms_p50']:.1f} ms", size(p["bytes"]), f"{p['build_s']:.1f} s",
        )  # fmt: skip
    return table


def promotions_table(report: RunReport) -> Table:
    """What was promoted, and what the gate measured."""
    columns = ("to", "memories", "accepted", *(name.replace("_", "-") for name in _SCORES), "seconds")
    table = table_of("promotions", *columns)
    for p in report["promotions"]:
        scores = [f"{p[name]:.2f}" if name in p else "" for name in _SCORES]  # type: ignore[literal-required]
        table.add_row(p["to"], str(len(p["sources"])), "yes" if p["accepted"] else "no", *scores, f"{p['seconds']:.1f}")
    return table


def remarks(report: RunReport) -> Iterator[str]:
    """What was read, why a promotion was refused, and of what memories one was accepted unasked."""
    for one in report["read"]:
        turns = f"{one['turns_kept']} turns kept, {one['turns_dropped']} dropped"
        yield f"{one['file']}: {one['memories']} memories, {turns}"
    yield from _refusals([p for p in report["promotions"] if not p["accepted"]])
    yield from (f"accepted, and its gate {p['asked']}" for p in report["promotions"] if p.get("asked"))


def _refusals(refused: Sequence[PromotionReport]) -> Iterator[str]:
    """Those that say the same, but for the ids of their memories, once; the report has each."""
    alike: dict[str, list[str]] = {}
    for promotion in refused:
        ids = ", ".join(promotion["sources"])
        alike.setdefault(promotion["why"].replace(ids, "their memories"), []).append(promotion["why"])
    for why, each in alike.items():
        yield f"refused: {each[0]}" if len(each) == 1 else f"refused, {len(each)} promotions: {why}"


def plot(report: RunReport, path: Path) -> None:
    """The four measures of each form, side by side, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")  # no screen needed
    from matplotlib import pyplot

    phases = report["phases"]
    labels = [f"{n}. {p['via']}" for n, p in enumerate(phases, start=1)]
    panels: tuple[tuple[str, Sequence[float], str, str], ...] = (
        ("accuracy", [p["accuracy"] for p in phases], "share right", "linear"),
        ("prompt", [p["prompt_tokens_mean"] for p in phases], "tokens through the model", "linear"),
        ("time to first token", [p["ttft_ms_p50"] for p in phases], "ms, median", "linear"),
        ("held", [max(1, p["bytes"]) for p in phases], "bytes", "log"),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 0.5 * len(phases) + 1.6), sharey=True)
    for axis, (title, values, unit, scale) in zip(axes, panels, strict=True):
        axis.barh(labels, values, color="#3b6ea5")
        axis.set(title=title, xlabel=unit, xscale=scale)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    model = report["model"]
    figure.suptitle(f"{report['name']}: {model['path']} ({model['parameters']:,} parameters) on {report['device']}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
