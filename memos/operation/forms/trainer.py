"""Trains an adapter, or KV of few rows, from texts: makes the lessons, trains, and has the gate judge.

Knows how lessons are made and judged; must not know which memories are worth it, nor how the result is published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memos.cube import Blob, Contrast, Fact, Form, Lesson, MemCube, Probe, Text
from memos.errors import Cancelled, Contradiction, GateRejected, NoProbes, Unsupported
from memos.infrastructure.host.training.self_study import study
from memos.infrastructure.host.training.teach import Crafted, Task, Tell, agreed, judge, lessons_of
from memos.operation.forms.executors import EXECUTORS

if TYPE_CHECKING:
    from memos.config import ActivationConfig, DistilConfig, GateConfig
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.vault.mem_vault import MemVault

Progress = Callable[[int, int, float], None]  # (step, most steps, loss)
QUESTIONS_PER_MEMORY, FORMS_PER_QUESTION = 6, 5  # that a model asks itself


class LessonReader(Protocol):
    """What is asked of language here: the questions that teach memories and prove that they were learnt."""

    def facts(self, text: str) -> tuple[Fact, ...]: ...

    def askable(self, facts: Iterable[Fact]) -> list[Fact]:
        """Those that a question has for its answer."""
        ...

    def probes(self, facts: Iterable[Fact]) -> list[Probe]: ...

    def lessons(self, memories: Sequence[Text]) -> list[Lesson]: ...

    def contrasts(self, facts: Sequence[Fact], known: Sequence[str], seed: int) -> list[Contrast]:
        """Prompts whose answers an adapter of these facts must not change."""
        ...


class Trainer:
    """Trains on one host."""

    def __init__(
        self,
        vault: MemVault,
        reader: LessonReader,
        host: Host,
        require_disk: Callable[[int], None],
        config: DistilConfig,
        activation: ActivationConfig,
    ) -> None:
        """require_disk: raises where KV of so many bytes has no room."""
        self._vault, self._reader, self._host, self._config = vault, reader, host, config
        self._activation, self._require_disk = activation, require_disk

    def train(
        self, form: Form, sources: Sequence[MemCube], job: str, progress: Progress, beside: Sequence[MemCube]
    ) -> Blob:
        """Kept if what was made, loaded from its file, passes the gate. Raises GateRejected, NoProbes, Cancelled."""
        began, work = time.perf_counter(), self._vault.blobs.work(job)

        def tell(phase: str, step: int, of: int, loss: float) -> None:
            if not self._vault.jobs.note(job, f"{phase} {step} of {of}" if of else phase):
                raise Cancelled(f"the promotion {job} was cancelled; nothing was published")
            if phase == "train":
                progress(step, of, loss)

        task = self.task(sources, tuple(self._vault.blobs.path(c.blob) for c in beside if c.blob), tell)
        if form is Form.ACTIVATION:
            memories = tuple(c.text for c in sources)
            task = task.model_copy(update={"memories": memories, "share": self._activation.trained_share})
        made = self._craft(task, work, tell)
        self._require(form, made.scores, len(sources))
        rows = self._finished(form, work / task.payload, made)
        tell("publish", 0, 0, 0.0)
        name, size = self._vault.blobs.store(work / task.payload)
        together = made.together is not None and not short_of(made.together, self._config.gate)
        return Blob(
            sha256=name,
            bytes=size,
            tokens=rows,
            codec="trained" if rows else "raw",
            fingerprint=self._host.digest,
            build_s=time.perf_counter() - began,
            scores=made.scores,
            beside=tuple(c.blob.sha256 for c in beside if c.blob) if together else (),
        )

    def _finished(self, form: Form, payload: Path, made: Crafted) -> int:
        """The rows of trained KV; an adapter has none, and its scores are written on its card."""
        if form is Form.ACTIVATION:
            self._require_disk(payload.stat().st_size)
            return self._host.load_kv(payload).rows
        self._host.finish_card(payload, {"scores": made.scores, "together": made.together})
        return 0

    def _craft(self, task: Task, work: Path, tell: Tell) -> Crafted:
        """Where it is asked for; else in a process of its own where that can load the same model beside a CPU's."""
        where = self._config.isolation
        if where == "auto":
            where = "process" if self._host.from_path and self._host.model.device.type == "cpu" else "thread"
        if where == "process" and not self._host.from_path:
            raise Unsupported(
                "distil.isolation process: the model was given in memory, and another process cannot load it; "
                "set model.path instead, or distil.isolation to thread"
            )
        return EXECUTORS.get(where)(self._host, task, work, tell)

    def task(self, sources: Sequence[MemCube], stack: tuple[Path, ...] = (), tell: Tell = lambda *_: None) -> Task:
        """What an adapter of the sources is to learn and to keep. Raises NoProbes."""
        facts = [fact for c in sources for fact in text_payload(c).facts]
        lessons = self._reader.lessons([text_payload(c) for c in sources])
        lessons += self._studied({c.text for c in sources} - {x.memories[0] for x in lessons}, tell)
        lessons = agreed(lessons)  # what two of the memories answer differently has no one answer
        if lessons and self._config.gate.generality and not any(x.probe.held_out for x in lessons):
            raise NoProbes(
                f"none of {len(lessons)} questions about {', '.join(c.id for c in sources)} is held out, so nothing "
                f"would tell what was learnt from what was repeated; give some with Probe(…, held_out=True)"
            )
        if not any(not x.probe.held_out for x in lessons):
            raise NoProbes(
                f"no question can be made of {', '.join(c.id for c in sources)}: the reader finds no (subject, "
                f"relation, object) in them; add them with probes=[Probe(question=…, answer=…)], let a model that "
                f"follows instructions ask itself (distil.self_study), or keep them as plaintext or KV"
            )
        card = {
            "sources": [
                {"id": c.id, "version": c.version, "text": c.text, "sha256": sha256(c.text.encode()).hexdigest()}
                for c in sources
            ],
            "seed": self._config.seed,
        }
        keep = self._reader.contrasts(facts, self._host.own_questions(), self._config.seed)
        return Task(lessons=tuple(lessons), keep=tuple(keep), config=self._config, card=card, stack=stack)

    def _studied(self, texts: Collection[str], tell: Tell) -> list[Lesson]:
        """Of memories in which the reader finds nothing, what the model asks itself about them."""
        count = self._config.self_study
        if count is None:
            count = QUESTIONS_PER_MEMORY if self._host.prompts.chat else 0
        out: list[Lesson] = []
        for n, text in enumerate(sorted(texts) if count else (), 1):
            tell("study", n, len(texts), 0.0)
            out += [
                Lesson(memories=(text,), probe=probe) for probe in study(self._host, text, count, FORMS_PER_QUESTION)
            ]
        return out

    def gate(self, stack: Sequence[Path], sources: Sequence[MemCube] = ()) -> tuple[dict[str, float], list[str]]:
        """Scores of adapters in folders, active together, and what falls short: on the sources, or on what their cards
        say that they were taught.

        Raises NoProbes where neither has a held-out question.
        """
        taught = [lesson for folder in stack for lesson in lessons_of(self._host, folder)] if not sources else []
        lessons = agreed([*self._reader.lessons([text_payload(c) for c in sources]), *taught])
        if not any(lesson.probe.held_out for lesson in lessons):
            names = ", ".join(folder.name for folder in stack)
            raise NoProbes(
                f"neither the card of {names} nor a memory that was named has held-out questions, so there is nothing "
                f"to judge it by; name memories that it should know with --on, or see what it says with "
                f"`memos externalize`"
            )
        facts = [f for text in dict.fromkeys(m for x in lessons for m in x.memories) for f in self._reader.facts(text)]
        keep = self._reader.contrasts(facts, self._host.own_questions(), self._config.seed)
        scores = judge(self._host, tuple(stack), lessons, keep)
        return scores, short_of(scores, self._config.gate)

    def _require(self, form: Form, scores: dict[str, float], memories: int) -> None:
        """Raises GateRejected, with what fell short."""
        if short := short_of(scores, self._config.gate):
            kind, way = "adapter", "keep them as KV"
            if form is Form.ACTIVATION:
                kind, way = "trained KV", "set activation.trained_share higher, or activation.codec to raw"
            raise GateRejected(
                f"the {kind} of {memories} memories failed its gate: {', '.join(short)}; nothing was published. "
                f"Promote fewer memories at once, allow more distil.steps, or {way}",
                scores,
            )


def short_of(scores: dict[str, float], gate: GateConfig) -> list[str]:
    """What falls short of the gate, in words; NaN does. What could not be asked is not in the scores."""
    most = {"drift"}
    return [
        f"{name} {scores[name]:.3f} (at {'most' if name in most else 'least'} {limit:g})"
        for name, limit in gate.model_dump().items()
        if name in scores and not (scores[name] <= limit if name in most else scores[name] >= limit)
    ]


def require_agreement(reader: LessonReader, sources: Sequence[MemCube]) -> None:
    """Raises Contradiction where two memories answer one question differently: conflicts are resolved in text."""
    answers: dict[tuple[str, str], tuple[str, MemCube]] = {}
    for cube in sources:
        for fact in reader.askable(text_payload(cube).facts):
            about = fact.subject.casefold(), fact.relation
            other, at = answers.setdefault(about, (fact.object, cube))
            if other.casefold() != fact.object.casefold():
                raise Contradiction(
                    f"{at.id} says {at.text!r} and {cube.id} says {cube.text!r}: only one of them can be learnt; "
                    f"correct or delete one, then promote"
                )


def text_payload(cube: MemCube) -> Text:
    assert isinstance(cube.payload, Text)  # promote takes plaintext cubes
    return cube.payload
