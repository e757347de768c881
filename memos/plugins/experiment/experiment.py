"""Runs the experiment of a config step by step into one folder, and continues an interrupted run.

After every step the results so far are written down, so an interrupted run goes on where it was; promotions are the
kernel's own transactions, so one that was cut off is simply made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TypedDict

from memos.errors import InputError, MemosError
from memos.kernel.mem_os import MemOS
from memos.plugins.experiment.config import RunConfig
from memos.plugins.experiment.folder import alone_in, writable, write
from memos.plugins.experiment.report import RunReport, RunResults
from memos.plugins.experiment.steps import StepRunner
from memos.plugins.figures import surroundings
from memos.plugins.progress import Show

VERSIONS = ("torch", "transformers", "peft", "faiss-cpu", "numpy", "safetensors")


class Progress(TypedDict):
    """progress.json. config: its digest; steps: how many there are; done: how many of them are."""

    config: str
    steps: int
    done: int
    results: RunResults


class Experiment:
    """One run of one config into one folder."""

    def __init__(self, config: RunConfig, out: Path, show: Show = lambda *_: None) -> None:
        self.config, self.out, self._show = config, out, show
        self._progress_file = out / "progress.json"
        self._digest = hashlib.sha256(config.model_dump_json(exclude={"vault"}).encode()).hexdigest()

    def run(self, fresh: bool = False) -> RunReport:
        """Carry out the steps that are not done yet; returns the report, which is also in OUT/report.json.

        fresh: begin anew although a run was interrupted here. A finished run begins again by itself; its vault is
        kept as vault.1, vault.2, …
        Raises InputError if the folder holds an unfinished run of another config, or one that goes on now.
        """
        if not self.config.experiment.steps:
            raise InputError("the config has no experiment.steps; add steps such as `- ingest: conversation.jsonl`")
        with alone_in(self.out):
            return self._run(fresh)

    def _run(self, fresh: bool) -> RunReport:
        progress, steps = self._resume(fresh), self.config.experiment.steps
        results = progress["results"]
        with MemOS(self.config, vault=self.config.vault.path or self.out / "vault") as kernel:
            runner, error = StepRunner(kernel, results, self._show), None
            for n in range(progress["done"], len(steps)):
                began = time.perf_counter()
                try:
                    runner.run(steps[n])
                except MemosError as refused:  # raised again, once what was reached is reported
                    error = refused
                    break
                finally:
                    results["seconds"] += time.perf_counter() - began
                progress["done"] = n + 1
                write(self._progress_file, progress)
            report = self._report(kernel, results, f"step {n + 1}: {error}" if error else "")
        write(self.out / "report.json", report)
        if error is not None:
            raise error
        return report

    def _resume(self, fresh: bool) -> Progress:
        begun: Progress = {
            "config": self._digest,
            "steps": len(self.config.experiment.steps),
            "done": 0,
            "results": {"read": [], "phases": [], "parity": None, "promotions": [], "moves": [], "seconds": 0.0},
        }
        if self._progress_file.is_file() and not fresh:
            found = _read(self._progress_file)
            if found["done"] < found["steps"]:
                if found["config"] == self._digest:
                    found["results"].setdefault("read", [])  # of a run that an earlier version began
                    return found
                raise InputError(
                    f"{self.out} holds an unfinished run of another config; choose another --out, "
                    f"or begin anew with --fresh"
                )
        with writable(self.out):
            if self.config.vault.path is None:
                _set_aside(self.out / "vault")
            write(self._progress_file, begun)
        return begun

    def _report(self, kernel: MemOS, results: RunResults, stopped: str) -> RunReport:
        host = kernel.parts.host.if_made if stopped else kernel.host  # it may be what could not be loaded
        return {
            "name": self.config.experiment.name,
            "stopped": stopped,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "model": host.describe() if host else {"path": self.config.model.path},
            "device": str(host.model.device) if host else "",
            "seed": self.config.seed,
            **surroundings(VERSIONS),
            **results,
        }


def _set_aside(vault: Path) -> None:
    """Give a new run an empty vault without deleting an old one: somebody may have talked to it since."""
    if vault.exists():
        vault.rename(next(p for n in itertools.count(1) if not (p := vault.with_name(f"vault.{n}")).exists()))


def _read(path: Path) -> Progress:
    """What an earlier run has done. Raises InputError."""
    try:
        found: Progress = json.loads(path.read_text("utf-8"))
        found["config"], found["done"], found["steps"] = str(found["config"]), int(found["done"]), int(found["steps"])
        float(found["results"]["seconds"])
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the progress of a run ({error}); begin anew with --fresh") from None
