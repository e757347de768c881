"""Everything that only a GPU shows, in pieces of ten minutes; writes its tables into docs/benchmarks.md.

    python scripts/gpu_report.py --out gpu_report                  # on a machine with CUDA; again, to go on
    python scripts/gpu_report.py --out /tmp/o --shape tiny --context 583 --query 167 --docs /tmp/page.md   # without

Weights are random in the shape of known models, so nothing is downloaded: times and bytes are those of the shape, and
what such a model says is nobody's. Each measurement is a file in --out, and one that is there is not made again; the
page has all that are there. What does not fit the device is known before it is loaded. A measurement that ends with an
error, does not fit, or for which no time is left, is named, on the page too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ("qwen2.5-0.5b", "qwen2.5-7b", "llama-3-8b", "qwen3-8b", "qwen3-32b", "llama-3-70b", "qwen2.5-72b")
MARK, NO_TIME = "gpu", "no time left; run this again to go on"
CONTEXTS, QUERIES = (583, 2773, 6064), (953, 303, 167)  # tokens, as MemOS's table has them (2507.03724)
CACHES = 4  # of one prompt that lie on the device at once, while reuse is measured
SPARE = 0.02  # of the device, for what is computed
QA_FACTS = 40  # of the conversation that mechanics are tried on


@dataclass(frozen=True)
class Columns:
    """How the rows of a benchmark's report become those of the page.

    by: names a row. once: figures that all rows of one name share, with their formats. along: of what each value has
    columns of its own, for the figures `each`. rows: their name in the report.
    """

    by: tuple[str, ...]
    once: dict[str, str]
    along: str = ""
    each: dict[str, str] = field(default_factory=dict)
    rows: str = "rows"


_MS = {"full_ms": ".0f", "reuse_ms": ".0f", "floor_ms": ".0f"}
_SCORES = {"generality": ".3f", "locality": ".3f", "accepted_rate": ".2f", "steps": ".0f", "seconds": ".1f"}
_LEVEL = ("level", "first_tokens", "share")
COLUMNS = {
    "ttft": Columns(("context", "query"), _MS, "tier", {"ours_ms": ".0f"}),
    "compose": Columns(
        ("n_cubes", *_LEVEL), {"ttft_ms": ".1f", "operations": ".2f", "decision_agreement": ".2f"}, rows="levels"
    ),
    "overlap": Columns(
        ("context", "tier"), {"bring_ms": ".1f", "forward_ms": ".1f", "together_ms": ".1f", "hidden": ".2f"}
    ),
    "batch": Columns(("requests_at_once",), {"tokens_per_s": ".0f", "one_by_one_tokens_per_s": ".0f", "ratio": ".1f"}),
    "kv-io": Columns(("tier",), {}, "codec", {"mb_s": ".0f", "share_of_raw": ".2f"}),
    "adapters": Columns(("known",), {"base_ms": ".0f"}, "distinct_in_batch", {"ms": ".0f"}),
    "promote": Columns(("objective", "facts"), _SCORES),
    "qa": Columns(
        ("system", "via", "category"),
        {"questions": ".0f", "failed": ".0f", "tokens_mean": ".0f", "ttft_ms_p50": ".1f"},
    ),
    "recommend": Columns(
        ("context", "form", "tier", "level"),
        {"ttft_ms": ".1f", "bytes": ",.0f", "build_s": ".3f", "break_even": ".1f", "per_day": ".1f"},
    ),
}


@dataclass(frozen=True)
class Job:
    """tokens: of the longest prompt whose KV it has on the device."""

    bench: str
    model: str
    options: tuple[str, ...] = ()
    tokens: int = 4096

    @property
    def file(self) -> str:
        return f"{self.bench}_{self.model.removeprefix('shape:')}.json"

    @property
    def command(self) -> list[str]:
        words = [self.bench] if self.bench == "recommend" else ["bench", self.bench]
        return [sys.executable, "-m", "memos", *words, "--model", self.model, *self.options]


def jobs(shapes: Sequence[str], contexts: Sequence[int], queries: Sequence[int], tiny: bool, out: Path) -> list[Job]:
    """What a piece of time should be spent on first comes first. tiny: to try the script, not the machine."""
    models = [f"shape:{shape}" for shape in shapes]
    # one of each size; what must answer from its context, or has answers worth comparing, is the small model, trained
    some = models if tiny else ["shape:qwen2.5-0.5b", "shape:qwen2.5-7b", "shape:qwen3-32b"]
    one = models if tiny else ["shape:qwen2.5-7b"]
    trained = [] if tiny else ["memos-small"]
    few, longest = "1" if tiny else "4", max(contexts)
    grid = (*_each("query", queries), *_each("context", contexts))
    every = [Job("ttft", model, grid, longest + max(queries)) for model in models]
    every += [Job("overlap", model, _each("context", contexts), longest) for model in some]
    every += [Job("compose", model, ("--questions", few)) for model in one]
    every += [Job("compose", model, ("--questions", "40")) for model in trained]
    every += [Job("batch", model, ("--clients", "2", "--tokens", "4") if tiny else ()) for model in some]
    every += [Job("adapters", model, ("--known", "8")) for model in (*trained, *one)]
    # what is trained must answer from its context, which random weights do not
    objectives = ("--objective", "distillation", "--objective", "trained KV")
    every += [Job("promote", model, ("--seeds", "1", *objectives)) for model in trained]
    every += [Job("recommend", model, ("--questions", few, *_each("context", contexts)), longest) for model in one]
    data = ("--set", str(out / "qa_data.json"))
    every += [Job("qa", model, (*data, "--out", str(out / f"qa_{model.removeprefix('shape:')}"))) for model in some[:2]]
    every += [Job("kv-io", model) for model in models]
    return every


def _each(name: str, values: Sequence[int]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (f"--{name}", str(value)))


# -- what fits ----------------------------------------------------------------------------------------------------


def device_bytes() -> int:
    """All memory of the device that the model runs on."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shape_bytes(model: str, width: int = 2) -> tuple[int, int]:
    """Of the weights, and of the KV of a token; (0, 0) for a model that is no shape. width: bytes of a number."""
    import torch

    from memos.infrastructure.host.model.load import PREFIX, SHAPES, random_model

    name = model.removeprefix(PREFIX)
    if name == model or name not in SHAPES:
        return 0, 0
    shape = SHAPES[name]
    head = shape.get("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
    kv = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head
    weights = random_model(name, torch.device("meta"), torch.bfloat16, None).num_parameters()
    return weights * width, kv * width


def fitted(job: Job, room: int, sizes: tuple[int, int]) -> tuple[Job | None, str]:
    """The job with the contexts that fit, None where none does; and what is left out, or ""."""
    weights, kv = sizes
    if not kv:
        return job, ""
    left = max(0, int((room * (1 - SPARE) - weights) / (CACHES * kv)))  # tokens
    needs = f"{weights / 1e9:,.0f} GB of weights leave room for KV of {left:,} tokens"
    if job.bench != "ttft" or job.tokens <= left:
        return (job, "") if job.tokens <= left else (None, f"does not fit: {needs}, and it takes {job.tokens:,}")
    contexts = [int(job.options[n + 1]) for n, word in enumerate(job.options) if word == "--context"]
    beside = job.tokens - max(contexts)
    short = [context for context in contexts if context + beside <= left]
    if not short:
        return None, f"does not fit: {needs}, and it takes {min(contexts) + beside:,}"
    rest = job.options[: job.options.index("--context")]
    without = ", ".join(f"{context:,}" for context in contexts if context not in short)
    small = replace(job, options=(*rest, *_each("context", short)), tokens=max(short) + beside)
    return small, f"without a context of {without}: {needs}"


# -- making them --------------------------------------------------------------------------------------------------


def run(job: Job, path: Path, left_s: float) -> str:
    """Make the job's report; why there is none, or ""."""
    if left_s < 1:
        return NO_TIME
    beside = path.with_suffix(".part")  # a report is there whole or not at all
    try:
        done = subprocess.run(
            [*job.command, "--json", str(beside)], timeout=left_s, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return NO_TIME
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip(" ╰─╯")]  # typer draws a box
        return (lines or ["no message"])[-1].strip(" │")[:200]
    beside.replace(path)
    return ""


def make_all(every: Sequence[Job], out: Path, minutes: float, room: int, width: int) -> dict[str, str]:
    """Make what is not there; by file, what is left out of it, and why."""
    ends, notes = time.monotonic() + 60 * minutes, dict[str, str]()
    sizes = {model: shape_bytes(model, width) for model in dict.fromkeys(job.model for job in every)}
    for n, job in enumerate(every, start=1):
        fits, why = fitted(job, room, sizes[job.model])
        if fits and not (out / job.file).exists():
            left = ends - time.monotonic()
            print(f"{n} of {len(every)}: {job.bench} of {job.model}, {left / 60:.1f} minutes left", flush=True)
            failed = run(fits, out / job.file, left)
            why = "; ".join(filter(None, (why, failed)))
        if why:
            notes[job.file] = why
            print(f"  {job.bench} of {job.model}: {why}", flush=True)
    return notes


def write_conversation(path: Path) -> None:
    """Turns and questions of the small model's world, in BEAM's form: mechanics are tried, not what is answered."""
    from memos.bench.scenes import scene

    drawn = scene("gpu report", 1, QA_FACTS)
    turns = [
        {"id": str(n), "role": "user", "content": line, "time": f"2026-01-{1 + n % 28:02}T12:00:00Z"}
        for n, line in enumerate(drawn.cubes[0])
    ]
    # answers are the names of things that nothing else is about
    questions = [
        {
            "ability": "recall",
            "question": probe.question,
            "answer": probe.answer,
            "evidence": [turn["id"] for turn in turns if probe.answer in turn["content"]],
        }
        for probe in drawn.one
    ]
    path.write_text(json.dumps([{"id": "1", "turns": turns, "questions": questions}]), "utf-8")


# -- the page -----------------------------------------------------------------------------------------------------


def tables(out: Path, made: Sequence[Job]) -> Iterator[str]:
    """A table for each benchmark, of the reports that are there, and what some say in words."""
    for bench, columns in COLUMNS.items():
        reports = [(job, read(out / job.file)) for job in made if job.bench == bench and (out / job.file).exists()]
        lines = [line for job, report in reports for line in lines_of(job.model, report[columns.rows], columns)]
        if lines:
            names = list(dict.fromkeys(name for line in lines for name in line))
            yield f"`memos {'' if bench == 'recommend' else 'bench '}{bench}`:\n"
            yield f"| {' | '.join(names)} |"
            yield "|---|" + "---:|" * (len(names) - 1)
            yield from (f"| {' | '.join(line.get(name, '') for name in names)} |" for line in lines)
            yield ""
        for job, report in reports:
            yield from words_of(job, report, out)


def lines_of(model: str, rows: Sequence[dict[str, Any]], columns: Columns) -> list[dict[str, str]]:
    """Cells by the names of their columns."""
    lines = dict[tuple[Any, ...], dict[str, str]]()
    for row in rows:
        named = {name: str(row[name]) for name in columns.by}
        line = lines.setdefault(tuple(named.values()), {"model": model.removeprefix("shape:")} | named)
        line |= {name: cell(row[name], kind) for name, kind in columns.once.items()}
        line |= {f"{name}, {row[columns.along]}": cell(row[name], kind) for name, kind in columns.each.items()}
    return list(lines.values())


def cell(value: float | None, kind: str) -> str:
    return "" if value is None else format(value, kind)


def words_of(job: Job, report: dict[str, Any], out: Path) -> Iterator[str]:
    """What a report says beside its rows."""
    name = job.model.removeprefix("shape:")
    if job.bench == "recommend":
        yield f"On {name}: {' '.join(report['sentences'])}\n"
    if job.bench == "qa":
        answers = [read(path)["answer"] for path in sorted((out / f"qa_{name}" / "answers").rglob("*.json"))]
        failed, tokens = sum(bool(a["failed"]) for a in answers), sum(a["answer_tokens"] for a in answers)
        took = max((a["seconds"] for a in answers), default=0.0)  # they are answered in one batch
        rate = f", {tokens / took:,.0f} tokens a second" if took else ""
        yield f"On {name}: {len(answers)} questions, {failed} without an answer{rate}.\n"


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


def write(docs: Path, text: str) -> None:
    """Put the text between the page's markers, or at its end."""
    page = docs.read_text("utf-8") if docs.exists() else ""
    block = f"<!-- figures: {MARK} -->\n{text}\n<!-- /figures -->"
    found = re.compile(rf"<!-- figures: {MARK} -->\n.*?<!-- /figures -->", re.DOTALL)
    page = found.sub(lambda _: block, page) if found.search(page) else f"{page.rstrip()}\n\n{block}\n"
    docs.write_text(page, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="instead of the default ones; may be given again")
    parser.add_argument("--context", action="append", type=int, help="tokens of memory; may be given again")
    parser.add_argument("--query", action="append", type=int, help="tokens of question; may be given again")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("gpu_report"))
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/benchmarks.md")
    args = parser.parse_args()

    import torch

    if not args.shape and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; give --shape tiny to try the script without one")
    on_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if on_gpu else "CPU"
    args.out.mkdir(parents=True, exist_ok=True)
    write_conversation(args.out / "qa_data.json")
    shapes, tiny = args.shape or SHAPES, bool(args.shape)
    every = jobs(shapes, args.context or CONTEXTS, args.query or QUERIES, tiny, args.out)
    notes = make_all(every, args.out, args.minutes, device_bytes(), 2 if on_gpu else 4)
    said = f"On one {device}, {time.strftime('%Y-%m-%d')}, torch {torch.__version__}: `python scripts/gpu_report.py`."
    missing = [f"- `{Path(file).stem.replace('_', '` of `', 1)}`: {why}" for file, why in notes.items()]
    page = [f"{said} Times in ms, seconds in s, rates in MB/s.\n", *tables(args.out, every)]
    write(args.docs, "\n".join([*page, *(["Left out:\n", *missing] if missing else [])]).strip())
    print(f"written to {args.docs}")


if __name__ == "__main__":
    main()
