"""Runs the experiment of a config step by step, and reports what each form cost and gave. Knows the kernel.

After every step the results so far are written down, so an interrupted run goes on where it was; promotions
are the kernel's own transactions, so one that was cut off is simply made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from memos.config import AskStep, Config, DemoteStep, IngestStep, PromoteStep, Step, TickStep
from memos.cube import Form, MemCube, Probe, State
from memos.errors import EmptyMemory, GateRejected, InputError, PromotionError
from memos.interface.doors.experiment.report import surroundings
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS, Reply

VERSIONS = ("memos", "torch", "transformers", "peft", "faiss-cpu", "numpy", "safetensors")
Results = dict[str, Any]


class Experiment:
    """One run of one config into one folder."""

    def __init__(self, config: Config, out: Path, show: Show = lambda *_: None) -> None:
        self.config, self.out, self._show = config, out, show
        self._results_file = out / "progress.json"
        self._digest = hashlib.sha256(config.model_dump_json(exclude={"vault"}).encode()).hexdigest()

    def run(self, fresh: bool = False) -> Results:
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
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            lock = (self.out / "run.lock").open("w")
        except OSError as error:
            raise InputError(f"--out {self.out} cannot be written: {error}; give a folder that can") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"another run is going on in {self.out}; wait for it, or choose another --out"
                ) from None
            yield

    def _run(self, fresh: bool) -> Results:
        results = self._resume(fresh)
        steps = self.config.experiment.steps
        with MemOS(self.config, vault=self.config.vault.path or self.out / "vault") as kernel:
            for n in range(results["done"], len(steps)):
                began = time.perf_counter()
                self._step(kernel, steps[n], results)
                results["seconds"] += time.perf_counter() - began
                results["done"] = n + 1
                _write(self._results_file, results)
            report = self._report(kernel, results)
        _write(self.out / "report.json", report)
        return report

    def _resume(self, fresh: bool) -> Results:
        begun: Results = {
            "config": self._digest,
            "steps": len(self.config.experiment.steps),
            "done": 0,
            "seconds": 0.0,
            "phases": [],
            "promotions": [],
            "moves": [],
            "parity": None,
        }
        if self._results_file.is_file() and not fresh:
            found = _read(self._results_file)
            if found["done"] < found["steps"]:
                if found["config"] == self._digest:
                    return found
                raise InputError(
                    f"{self.out} holds an unfinished run of another config; choose another --out, "
                    f"or begin anew with --fresh"
                )
        try:
            if self.config.vault.path is None:
                _set_aside(self.out / "vault")
            _write(self._results_file, begun)
        except OSError as error:
            raise InputError(f"--out {self.out} cannot be written: {error}; give a folder that can") from None
        return begun

    def _step(self, kernel: MemOS, step: Step, results: Results) -> None:
        match step:
            case IngestStep(ingest=file):
                self._show(f"read {file.name}", 0, 1)
                kept = kernel.add(file)
                if not kept:
                    raise EmptyMemory(
                        f"{file} holds no statement worth keeping; give a file in which somebody says something"
                    )
                self._show(f"read {file.name}: {len(kept)} memories", 1, 1)
            case AskStep(ask=ask):
                results["phases"].append(self._ask(kernel, ask.via, ask.questions, results))
            case PromoteStep(promote=promotion):
                self._promote(kernel, promotion, results)
            case DemoteStep(demote=demotion):
                live = [c for c in kernel.cubes(form=demotion.of) if c.state is State.ACTIVATED]
                for n, cube in enumerate(live, start=1):
                    sources = kernel.demote(cube.id)
                    results["moves"].append(
                        {"move": f"{demotion.of} to plaintext", "cube": cube.id, "sources": [c.id for c in sources]}
                    )
                    self._show(f"demote {demotion.of}", n, len(live))
            case TickStep(tick=times):
                for n in range(times):
                    results["moves"] += kernel.tick(progress=self._training("tick"))
                    self._show("tick", n + 1, times)
            case _:
                assert_never(step)

    def _ask(self, kernel: MemOS, via: Any, file: Path, results: Results) -> Results:
        questions = read_questions(file)
        if via != "none" and not kernel.cubes():
            raise EmptyMemory(
                f"nothing is remembered that could be asked via {via}; put an ingest step before this one"
            )
        replies: list[Results] = []
        asked: list[Reply] = []
        right, diffs = 0, []
        used: dict[str, MemCube] = {}
        for n, probe in enumerate(questions, start=1):
            try:
                reply = kernel.ask(probe.question, via=via)
            except EmptyMemory as error:  # one of its memories did not take this form: not answered, so not right
                if n == len(questions) and not asked:
                    raise
                replies.append({"question": probe.question, "expected": probe.answer, "answer": "", "why": str(error)})
                continue
            right += probe.holds(reply.text)
            replies.append(
                {
                    "question": probe.question,
                    "expected": probe.answer,
                    "answer": reply.text,
                    "form": reply.admission.form or "none",
                }
            )
            used |= {c.id: c for c in (*reply.admission.cubes, *reply.admission.activations, *reply.admission.adapters)}
            if via == "activation":
                diffs.append(kernel.parity(probe.question))
            asked.append(reply)
            self._show(f"ask via {via}", n, len(questions))
        if diffs:
            results["parity"] = {
                "max_abs_logit_diff": max(d for d, _ in diffs),
                "top1_agreement": statistics.fmean(a for _, a in diffs),
            }
        derived = [c.blob for c in used.values() if c.blob]
        return {
            "via": via,
            "questions": len(questions),
            "accuracy": right / len(questions),
            "prompt_tokens_mean": statistics.fmean(r.prompt_tokens for r in asked),
            "ttft_ms_p50": statistics.median(r.ttft_ms for r in asked),
            "bytes": sum(b.bytes for b in derived) or sum(len(c.text.encode()) for c in used.values()),
            "build_s": sum(b.build_s for b in derived),
            "replies": replies,
        }

    def _promote(self, kernel: MemOS, promotion: PromoteStep.Promotion, results: Results) -> None:
        groups = (
            [list(promotion.ids)]
            if promotion.ids
            else [[c.id for c in s.cubes] for s in self._by_rule(kernel, promotion)]
        )
        if not groups:
            what = "nothing is remembered; put an ingest step before this one"
            if promotion.rule == "hot":
                what = "no memory is hot enough yet; ask first, or use rule: all"
            raise EmptyMemory(f"nothing to promote to {promotion.to}: {what}")
        what = "distil" if promotion.to is Form.PARAMETRIC else "encode"
        for n, ids in enumerate(groups, start=1):
            began = time.perf_counter()
            row: Results = {"to": str(promotion.to), "sources": ids, "accepted": True}
            try:
                blob = kernel.promote(ids, promotion.to, progress=self._training(f"{what} {n} of {len(groups)}")).blob
                assert blob
                row |= {"bytes": blob.bytes, "seconds": blob.build_s, **blob.scores}
            except PromotionError as error:
                scores = error.scores if isinstance(error, GateRejected) else {}
                row |= {"accepted": False, "why": str(error), "seconds": time.perf_counter() - began, **scores}
            results["promotions"] = [
                p for p in results["promotions"] if (p["to"], p["sources"]) != (row["to"], ids)
            ] + [row]
            self._show(f"promote to {promotion.to}", n, len(groups))

    def _by_rule(self, kernel: MemOS, promotion: PromoteStep.Promotion) -> list[Any]:
        segments = kernel.segments()
        if promotion.rule == "all":
            return segments
        enough = (
            self.config.scheduler.parametric_heat
            if promotion.to is Form.PARAMETRIC
            else self.config.scheduler.activate_heat
        )
        return [s for s in segments if kernel.heat(s) >= enough]

    def _training(self, what: str) -> Callable[[int, int, float], None]:
        return lambda step, steps, loss: self._show(f"{what}, loss {loss:.3f}" if loss else what, step, steps)

    def _report(self, kernel: MemOS, results: Results) -> Results:
        return {
            "name": self.config.experiment.name,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "model": kernel.host.describe(),
            "device": str(kernel.host.model.device),
            "seed": self.config.seed,
            **surroundings(VERSIONS),
            **{key: results[key] for key in ("phases", "parity", "promotions", "moves", "seconds")},
        }


def read_questions(path: Path) -> list[Probe]:
    """JSONL of {question, answer}. Raises InputError with the line, EmptyMemory for a file without questions."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"questions file {path} cannot be read: {error}; give a UTF-8 JSONL file of {{question, answer}}"
        ) from None
    probes = []
    for n, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            probes.append(Probe(question=entry["question"], answer=entry["answer"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f'{path}, line {n} is not a question: {error}; write {{"question": …, "answer": …}}'
            ) from None
    if not probes:
        raise EmptyMemory(f'questions file {path} is empty; write one {{"question": …, "answer": …}} a line')
    return probes


def _set_aside(vault: Path) -> None:
    """Give a new run an empty vault without deleting an old one: somebody may have talked to it since."""
    if vault.exists():
        vault.rename(next(p for n in itertools.count(1) if not (p := vault.with_name(f"vault.{n}")).exists()))


def _read(path: Path) -> Results:
    """What an earlier run has done. Raises InputError."""
    try:
        found: Results = json.loads(path.read_text("utf-8"))
        return found | {"config": str(found["config"]), "done": int(found["done"]), "steps": int(found["steps"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the progress of a run ({error}); begin anew with --fresh") from None


def _write(path: Path, data: Results) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as f:
        json.dump(data, f, indent=1, ensure_ascii=False)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)
