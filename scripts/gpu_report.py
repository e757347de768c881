"""Everything that only a GPU shows, in pieces of ten minutes; writes its tables into docs/benchmarks.md.

    python scripts/gpu_report.py --out gpu_report                  # on a machine with CUDA; again, to go on
    python scripts/gpu_report.py --out /tmp/o --shape tiny --context 583 --query 167 --docs /tmp/page.md   # without

Weights are random in the shape of known models, so nothing is downloaded: times and bytes are those of the shape, and
what such a model says is nobody's. Each measurement is a file in --out, and one that is there is not made again; the
page has all that are there. A measurement that ends with an error, or for which no time is left, is named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ("qwen2.5-0.5b", "qwen2.5-7b", "llama-3-8b", "qwen3-8b", "qwen3-32b")
ADAPTED = ("memos-small", "shape:qwen2.5-7b")  # models that adapters are served with
MARK = "gpu"


@dataclass(frozen=True)
class Columns:
    """How the rows of a benchmark's report become those of the page.

    by: names a row. once: figures that all rows of one name share, with their formats. along: of what each value has
    columns of its own, for the figures `each`.
    """

    by: tuple[str, ...]
    once: dict[str, str]
    along: str = ""
    each: dict[str, str] = field(default_factory=dict)


_MS = {"full_ms": ".0f", "reuse_ms": ".0f", "floor_ms": ".0f"}
_SCORES = {"generality": ".3f", "locality": ".3f", "accepted_rate": ".2f", "steps": ".0f", "seconds": ".1f"}
COLUMNS = {
    "ttft": Columns(("context", "query"), _MS, "tier", {"ours_ms": ".0f"}),
    "kv-io": Columns(("tier",), {}, "codec", {"mb_s": ".0f", "share_of_raw": ".2f"}),
    "adapters": Columns(("known",), {"base_ms": ".0f"}, "distinct_in_batch", {"ms": ".0f"}),
    "promote": Columns(("objective", "facts"), _SCORES),
}


@dataclass(frozen=True)
class Job:
    bench: str
    model: str
    options: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return f"{self.bench}_{self.model.removeprefix('shape:')}.json"


def jobs(shapes: Sequence[str], adapted: Sequence[str], grid: Sequence[str]) -> Iterator[Job]:
    for shape in shapes:
        yield Job("ttft", f"shape:{shape}", tuple(grid))
        yield Job("kv-io", f"shape:{shape}")
    for model in adapted:
        yield Job("adapters", model, ("--known", "8"))
    if adapted:  # what is trained must answer from its context, which random weights do not
        yield Job(
            "promote", "memos-small", ("--seeds", "1", "--objective", "distillation", "--objective", "trained KV")
        )


def run(job: Job, path: Path, left_s: float) -> str:
    """Make the job's report; why there is none, or ""."""
    command = [sys.executable, "-m", "memos", "bench", job.bench, "--model", job.model, *job.options]
    try:
        done = subprocess.run(
            [*command, "--json", str(path)], timeout=left_s, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "no time left"
    return (done.stderr.strip().splitlines() or ["no message"])[-1][:200] if done.returncode else ""


def tables(out: Path, made: Sequence[Job]) -> Iterator[str]:
    """A table for each benchmark, of the reports that are there."""
    for bench, columns in COLUMNS.items():
        reports = [(job, read(out / job.file)) for job in made if job.bench == bench and (out / job.file).exists()]
        lines = [line for job, report in reports for line in lines_of(job.model, report["rows"], columns)]
        if lines:
            yield f"`memos bench {bench}`:\n"
            yield f"| {' | '.join(lines[0])} |"
            yield "|---|" + "---:|" * (len(lines[0]) - 1)
            yield from (f"| {' | '.join(line.values())} |" for line in lines)
            yield ""


def lines_of(model: str, rows: Sequence[dict[str, Any]], columns: Columns) -> list[dict[str, str]]:
    """Cells by the names of their columns."""
    lines = dict[tuple[Any, ...], dict[str, str]]()
    for row in rows:
        named = {name: str(row[name]) for name in columns.by}
        line = lines.setdefault(tuple(named.values()), {"model": model.removeprefix("shape:")} | named)
        line |= {name: format(row[name], kind) for name, kind in columns.once.items()}
        line |= {f"{name}, {row[columns.along]}": format(row[name], kind) for name, kind in columns.each.items()}
    return list(lines.values())


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
    parser.add_argument("--context", action="append", help="tokens of memory; may be given again")
    parser.add_argument("--query", action="append", help="tokens of question; may be given again")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("gpu_report"))
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/benchmarks.md")
    args = parser.parse_args()

    import torch

    if not args.shape and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; give --shape tiny to try the script without one")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    ends = time.monotonic() + 60 * args.minutes
    grid = [x for name in ("context", "query") for value in getattr(args, name) or () for x in (f"--{name}", value)]
    all_jobs = list(jobs(args.shape or SHAPES, [] if args.shape else ADAPTED, grid))
    args.out.mkdir(parents=True, exist_ok=True)
    for n, job in enumerate(all_jobs, start=1):
        left = ends - time.monotonic()
        path = args.out / job.file
        if path.exists():
            continue
        print(f"{n} of {len(all_jobs)}: {job.bench} of {job.model}, {max(0.0, left) / 60:.1f} minutes left", flush=True)
        if why := "no time left; run this again to go on" if left < 1 else run(job, path, left):
            print(f"  {why}", flush=True)
    said = f"On one {device}, {time.strftime('%Y-%m-%d')}, torch {torch.__version__}: `python scripts/gpu_report.py`."
    write(
        args.docs,
        "\n".join([f"{said} Times in ms, seconds in s, rates in MB/s.\n", *tables(args.out, all_jobs)]).strip(),
    )
    print(f"written to {args.docs}")


if __name__ == "__main__":
    main()
