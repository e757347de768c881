"""Carries out the steps of an experiment on a kernel, and records what each achieved and cost."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from typing_extensions import assert_never

from memos.cube import Form, Probe, State
from memos.errors import EmptyMemory, GateRejected, InputError, PromotionError
from memos.interface.reading.documents.parts import DialogueTurn, read
from memos.kernel.calls import Services
from memos.kernel.mem_os import MemOS, Reply
from memos.ops import Episode
from memos.plugins.experiment.config import AskStep, DemoteStep, IngestStep, PromoteStep, Step, TickStep
from memos.plugins.experiment.report import ParityReport, PhaseReport, PromotionReport, QuestionReport, RunResults
from memos.plugins.progress import Show
from memos.rights import Caller


class StepRunner:
    """Adds to the results of one run."""

    def __init__(self, kernel: MemOS, results: RunResults, show: Show) -> None:
        self._kernel, self._results, self._show = kernel, results, show

    def run(self, step: Step) -> None:
        match step:
            case IngestStep(ingest=file):
                self._ingest(file)
            case AskStep(ask=ask):
                self._results["phases"].append(self._ask(ask))
            case PromoteStep(promote=promotion):
                self._promote(promotion)
            case DemoteStep(demote=demotion):
                self._demote(demotion.of)
            case TickStep(tick=times):
                for n in range(times):
                    self._results["moves"] += self._kernel.tick(progress=self._training("tick"))
                    self._show("tick", n + 1, times)
            case _:
                assert_never(step)

    def _ingest(self, file: Path) -> None:
        self._show(f"read {file.name}", 0, 1)
        added = self._kernel.add(file)
        if not added:
            raise EmptyMemory(f"{file} holds no statement worth keeping; give a file in which somebody says something")
        kept = sum(isinstance(op, Episode) for op in self._kernel.parts.reader.read_content(file)[0])
        turns = sum(isinstance(part, DialogueTurn) for part in read(file))
        self._results["read"].append(
            {"file": file.name, "turns_kept": kept, "turns_dropped": turns - kept, "memories": len(added)}
        )
        self._show(f"read {file.name}: {len(added)} memories", 1, 1)

    def _ask(self, ask: AskStep.Ask) -> PhaseReport:
        probes = read_questions(ask.questions)
        if ask.via != "none" and not self._kernel.cubes():
            raise EmptyMemory(
                f"nothing is remembered that could be asked via {ask.via}; put an ingest step before this one"
            )
        answered = list[tuple[Probe, Reply]]()
        rows, differences = list[QuestionReport](), list[tuple[float, float]]()
        for n, probe in enumerate(probes, start=1):
            row: QuestionReport = {"question": probe.question, "expected": probe.answer}
            try:
                reply = self._kernel.ask(probe.question, via=ask.via)
            except EmptyMemory as error:  # one of its memories did not take this form: not answered, so not right
                if n == len(probes) and not answered and not self._tried(ask.via):
                    raise
                rows.append({**row, "answer": "", "why": str(error)})
                continue
            rows.append({**row, "answer": reply.text, "form": reply.admission.form or "none"})
            if ask.via == "activation":
                differences.append(parity(self._kernel.services, self._kernel.caller, probe.question))
            answered.append((probe, reply))
            self._show(f"ask via {ask.via}", n, len(probes))
        if differences:
            self._results["parity"] = _parity(differences)
        return _phase(ask.via, rows, answered)

    def _tried(self, form: str) -> bool:
        """True if this run has promoted to a form, so that memories without it are a result and no mistake."""
        return any(promotion["to"] == form for promotion in self._results["promotions"])

    def _promote(self, promotion: PromoteStep.Promotion) -> None:
        groups = self._groups(promotion)
        if not groups:
            what = "nothing is remembered; put an ingest step before this one"
            if promotion.rule == "hot":
                what = "no memory is hot enough yet; ask first, or use rule: all"
            raise EmptyMemory(f"nothing to promote to {promotion.to}: {what}")
        what = "distil" if promotion.to is Form.PARAMETRIC else "encode"
        for n, ids in enumerate(groups, start=1):
            row = self._promoted(ids, promotion.to, f"{what} {n} of {len(groups)}")
            same = (row["to"], row["sources"])
            others = [p for p in self._results["promotions"] if (p["to"], p["sources"]) != same]
            self._results["promotions"] = [*others, row]
            self._show(f"promote to {promotion.to}", n, len(groups))

    def _groups(self, promotion: PromoteStep.Promotion) -> list[list[str]]:
        """Ids of the memories that are promoted together."""
        if promotion.ids:
            return [list(promotion.ids)]
        segments, config = self._kernel.segments(), self._kernel.config.scheduler
        if promotion.rule == "hot":
            enough = config.parametric_heat if promotion.to is Form.PARAMETRIC else config.activate_heat
            segments = [segment for segment in segments if self._kernel.services.planning.heat(segment) >= enough]
        return [[cube.id for cube in segment.cubes] for segment in segments]

    def _promoted(self, ids: list[str], to: Form, what: str) -> PromotionReport:
        began = time.perf_counter()
        row: PromotionReport = {"to": str(to), "sources": ids, "accepted": True}
        try:
            cube = self._kernel.promote(ids, to, progress=self._training(what))
            blob = cube.blob
            assert blob
            row |= {"bytes": blob.bytes, "seconds": blob.build_s, "asked": cube.asked}
            scores = blob.scores
        except PromotionError as error:
            row |= {"accepted": False, "why": str(error), "seconds": time.perf_counter() - began}
            scores = error.scores if isinstance(error, GateRejected) else {}
        return row | cast(PromotionReport, scores)

    def _demote(self, form: Form) -> None:
        live = [cube for cube in self._kernel.cubes(form=form) if cube.state is State.ACTIVATED]
        for n, cube in enumerate(live, start=1):
            sources = [source.id for source in self._kernel.demote(cube.id)]
            self._results["moves"].append({"move": f"{form} to plaintext", "cube": cube.id, "sources": sources})
            self._show(f"demote {form}", n, len(live))

    def _training(self, what: str) -> Callable[[int, int, float], None]:
        return lambda step, steps, loss: self._show(f"{what}, loss {loss:.3f}" if loss else what, step, steps)


def parity(services: Services, caller: Caller, question: str) -> tuple[float, float]:
    """How exact KV is for this question: (largest |logit difference| to the full prompt, top-1 agreement)."""
    parts = services.parts
    admission = services.answering.admit(caller, parts.reader.recall(question), "activation")
    messages = [{"role": "user", "content": question}]
    near = parts.host().nearness(parts.serving().request(admission, messages, "activation", parts.tokens)[1])
    return near.max_abs_logit_diff, near.top1_agreement


def _parity(differences: list[tuple[float, float]]) -> ParityReport:
    return {
        "max_abs_logit_diff": max(difference for difference, _ in differences),
        "top1_agreement": statistics.fmean(agreement for _, agreement in differences),
    }


def _phase(via: str, rows: list[QuestionReport], answered: list[tuple[Probe, Reply]]) -> PhaseReport:
    admissions = [reply.admission for _, reply in answered]
    used = {c.id: c for seen in admissions for c in (*seen.cubes, *seen.activations, *seen.adapters)}
    derived = [cube.blob for cube in used.values() if cube.blob]
    return {
        "via": via,
        "questions": len(rows),
        "accuracy": sum(probe.holds(reply.text) for probe, reply in answered) / len(rows),
        "prompt_tokens_mean": statistics.fmean(reply.prompt_tokens for _, reply in answered) if answered else 0.0,
        "ttft_ms_p50": statistics.median(reply.ttft_ms for _, reply in answered) if answered else 0.0,
        "bytes": sum(blob.bytes for blob in derived) or sum(len(cube.text.encode()) for cube in used.values()),
        "build_s": sum(blob.build_s for blob in derived),
        "replies": rows,
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
