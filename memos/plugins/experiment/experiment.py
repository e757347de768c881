"""Runs the experiment of a config step by step into one folder, and continues an interrupted run.

After every step the results so far are written down, so an interrupted run goes on where it was; promotions are the
kernel's own transactions, so one that was cut off is simply made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TypedDict

from memos.config import Config
from memos.errors import InputError, MemosError
from memos.interface.doors.figures import surroundings
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS
from memos.plugins.experiment.report import RunReport, RunResults
from memos.plugins.experiment.steps import StepRunner

VERSIONS = ("torch", "transformers", "peft", "faiss-cpu", "numpy", "safetensors")


class Progress(TypedDict):
    """progress.json. config: its digest; steps: how many there are; done: how many of them are."""

    config: str
    steps: int
    done: int
    results: RunResults


class Experiment:
    """One run of one config into one folder."""

    def __init__(self, config: Config, out: Path, show: Show = lambda *_: None) -> None:
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
        with self._alone():
            return self._run(fresh)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder: two runs would undo each other's promotions. A run that dies lets go of it."""
        with self._written():
            self.out.mkdir(parents=True, exist_ok=True)
            lock = (self.out / "run.lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"another run is going on in {self.out}; wait for it, or choose another --out"
                ) from None
            yield

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raises InputError where the folder cannot be written within it."""
        try:
            yield
        except OSError as error:
            raise InputError(f"--out {self.out} cannot be written: {error}; give a folder that can") from None

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
                _write(self._progress_file, progress)
            report = self._report(kernel, results, f"step {n + 1}: {error}" if error else "")
        _write(self.out / "report.json", report)
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
        with self._written():
            if self.config.vault.path is None:
                _set_aside(self.out / "vault")
            _write(self._progress_file, begun)
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


def _write(path: Path, data: Progress | RunReport) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as f:
        json.dump(data, f, indent=1, ensure_ascii=False)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)
