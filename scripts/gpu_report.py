"""Everything that only a GPU shows, in one command of at most ten minutes; writes its tables into docs/benchmarks.md.

    python scripts/gpu_report.py                                   # on a machine with CUDA
    python scripts/gpu_report.py --shape cpu-126m --query 167 --context 583 --docs /tmp/page.md   # try it without

Weights are random in the shape of known models, so nothing is downloaded. A shape that does not fit in the time
or the memory that is left is named in the table; the others are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ("qwen2.5-0.5b", "qwen2.5-7b", "qwen3-8b", "llama-3-8b")
MARK = "gpu"


def run(arguments: list[str], left_s: float) -> dict[str, Any] | str:
    """The report of a `memos` command, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "memos", *arguments, "--json", str(file)]
        try:
            done = subprocess.run(command, timeout=max(1.0, left_s), capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return "no time left"
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
        return dict(json.loads(file.read_text("utf-8")))


def ttft_rows(shape: str, report: dict[str, Any] | str) -> list[str]:
    if isinstance(report, str):
        return [f"| {shape} | {report} | | | | | | | |"]
    return [
        f"| {shape} | {r['context']} | {r['query']} | {r['tier']} | {r['full_ms']:.0f} | {r['reuse_ms']:.0f} "
        f"| {r['ours_ms']:.0f} | {r['floor_ms']:.0f} | {r['saved']:.1%} |"
        for r in report["rows"]
    ]


def kv_rows(shape: str, report: dict[str, Any] | str) -> list[str]:
    if isinstance(report, str):
        return [f"| {shape} | {report} | | | | |"]
    return [
        f"| {shape} | {r['tier']} | {r['codec']} | {r['mb_s']:.0f} | {r['share_of_raw']:.2f} | {r['fidelity_kl']:.2g} |"
        for r in report["rows"]
    ]


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
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/benchmarks.md")
    args = parser.parse_args()

    import torch

    if not args.shape and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; give --shape cpu-126m to try the script without one")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    ends = time.monotonic() + 60 * args.minutes
    grid = [x for name in ("context", "query") for value in getattr(args, name) or () for x in (f"--{name}", value)]
    ttft, kv = list[str](), list[str]()
    for shape in args.shape or SHAPES:
        print(f"{shape}, {max(0.0, ends - time.monotonic()) / 60:.1f} minutes left", flush=True)
        ttft += ttft_rows(shape, run(["bench", "ttft", "--model", f"shape:{shape}", *grid], ends - time.monotonic()))
        kv += kv_rows(shape, run(["bench", "kv-io", "--model", f"shape:{shape}"], ends - time.monotonic()))
    lines = [
        f"On {device}, {time.strftime('%Y-%m-%d')}, torch {torch.__version__}: `{' '.join(['python', *sys.argv])}`. "
        f"Times in ms.",
        "",
        "| shape | context | query | tier | full | reuse | ours | floor | saved |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
        *ttft,
        "",
        "| shape | tier | codec | load MB/s | of a raw read | KL |",
        "|---|---|---|---:|---:|---:|",
        *kv,
    ]
    write(args.docs, "\n".join(lines))
    print(f"written to {args.docs}")


if __name__ == "__main__":
    main()
