"""Promotes plaintext cubes to one derived cube, as a transaction; knows how each form is built and proven.

    known already? -> job -> build -> prove -> store -> publish by compare-and-swap -> job done
                             prepare, train, save, load cold, gate

Whatever fails before the publish leaves no cube: the job ends as undone, and what was staged is removed. What is
killed or interrupted in training goes on from its checkpoint when it is asked for again. Decides nothing about
rights or about when to promote.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import BY_HAND, Blob, Form, Header, MemCube, Probe, Rights, Source, State, new_cube
from memos.errors import Cancelled, CorruptBlob, GateRejected, NoProbes, NoRoom, Unsupported
from memos.infrastructure.host.engines import EXECUTORS
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.kv.files import codecs
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.threads import openmp_threads
from memos.infrastructure.host.training.teach import Crafted, Task, Tell, agreed, judge, lessons_of, short_of
from memos.infrastructure.host.training.turn import training_turn
from memos.operation.choosing.upkeep import JobKind, Progress
from memos.operation.forms.lesson_maker import ASKABLE, LessonMaker
from memos.operation.forms.lessons import LessonReader, require_agreement
from memos.operation.forms.seen import VISION, visions
from memos.operation.life.knowledge import text_of

if TYPE_CHECKING:
    from memos.config import ActivationConfig, DistilConfig
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.infrastructure.vault.tables.job_list import Job
    from memos.operation.forms.serving import Serving
    from memos.operation.life.mem_lifecycle import MemLifecycle

log = logging.getLogger("memos")
# Largest |logit difference| from the full prompt at which a new KV cache is kept, by dtype.
PARITY = {"bfloat16": 0.5, "float16": 0.5}  # 1e-3 for the others


class Transitions:
    """Builds derived cubes on one host and publishes them."""

    def __init__(
        self,
        vault: MemVault,
        lifecycle: MemLifecycle,
        reader: LessonReader,
        host: Host,
        serving: Serving,
        config: DistilConfig,
        activation: ActivationConfig,
    ) -> None:
        self._vault, self._lifecycle, self._reader, self._host, self._config = vault, lifecycle, reader, host, config
        self._activation, self._serving = activation, serving
        self._lessons = LessonMaker(reader, host, config)

    def promote(
        self,
        form: Form,
        sources: Sequence[MemCube],
        progress: Progress,
        beside: Sequence[MemCube] = (),
        job: Job | None = None,
        require: Callable[[], None] = lambda: None,
    ) -> MemCube:
        """One cube of the sources, which are plaintext and in canonical order, in the form; see MemOS.promote.

        beside: adapters that a new one is to be active with. job: the running one that this is. require: raises where
        no more may be made.
        """
        if (known := self._known(form, sources)) is not None:
            return known
        require()
        trained = form is Form.PARAMETRIC or self._activation.few_rows
        if trained:
            require_agreement(self._reader, sources)
        kind, order = JobKind.promote(form), self._order(form, sources, beside)
        if job:  # whoever has taken it keeps its lease, and says how it ended where nothing is published
            self._vault.jobs.describe(job, order)
            return self._built(form, sources, job, progress, beside)
        job = self._vault.jobs.resume(kind, order) or self._vault.jobs.start(kind, order)
        try:
            with self._vault.jobs.renewed(job):
                return self._built(form, sources, job, progress, beside)
        except BaseException as error:  # an interrupt too: the job is undone whatever ended it
            # what was cut off by a person goes on from its checkpoint, when it is asked for again
            resumable = isinstance(error, KeyboardInterrupt) and trained
            with suppress(Cancelled):  # another has it by now
                self._vault.jobs.end(job, "interrupted" if resumable else "undone", f"{type(error).__name__}: {error}")
            raise

    def _built(
        self, form: Form, sources: Sequence[MemCube], job: Job, progress: Progress, beside: Sequence[MemCube]
    ) -> MemCube:
        """Build, prove, store and publish, unless the job is another's by then: what fails leaves no cube."""
        blob, origin = None, "promotion" if job.tries else BY_HAND
        try:
            with openmp_threads(), self._vault.blobs.staging() as staged:
                if form is Form.PARAMETRIC or self._activation.few_rows:
                    blob = self._train(form, sources, job, progress, beside)
                else:
                    blob = self._encode(sources, staged, progress)
                with self._vault.transaction():
                    cube = self._lifecycle.publish(_derived(form, sources, blob, self._vault.now(), origin))
                    self._replace(cube)
                    self._vault.jobs.end(job, "done", cube.id)
        except BaseException as error:  # an interrupt too
            # of a job that is another's by now, the same may be what that is about to publish
            if blob is not None and not isinstance(error, Cancelled):
                self._vault.blobs.discard(blob.sha256)
            raise
        return cube

    def refused(self, form: Form, sources: Sequence[MemCube]) -> bool:
        """True if these memories, as they are now, were built in this form before and did not prove themselves."""
        tried, order = self._vault.jobs.all("undone", kind=JobKind.promote(form)), self._order(form, sources)
        verdicts = tuple(error.__name__ for error in (GateRejected, NoProbes, Unsupported))
        return any(job.note.startswith(verdicts) for job in tried if order == job.payload | {"beside": order["beside"]})

    def probes(self, cube: MemCube) -> list[Probe]:
        """Questions that tell whether a memory is remembered: the user's own, and those of its facts."""
        return [*text_of(cube).probes, *self._reader.probes(text_of(cube).facts)]

    def _known(self, form: Form, sources: Sequence[MemCube]) -> MemCube | None:
        """The sound derived cube of just these memories on this host; taken back into use if it was given up."""
        for cube, blob in self._made(form, tuple(c.pin for c in sources)):
            if form is Form.ACTIVATION and self._activation.codec not in ("auto", blob.codec):
                continue
            try:
                self._vault.blobs.path(blob)
            except CorruptBlob as error:
                log.warning("building again: %s", error)
                self._lifecycle.delete(cube.id)
                continue
            if cube.state is not State.ARCHIVED:
                return cube
            with self._vault.transaction():
                cube = self._lifecycle.move(cube.id, State.ACTIVATED, "promoted again")
                self._replace(cube)
            return cube
        return None

    def _replace(self, cube: MemCube) -> None:
        """Give up what stands for the same memories in the same form, as KV in another codec does."""
        for other, _ in self._made(cube.form, cube.sources):
            if other.id != cube.id and other.state is State.ACTIVATED:
                self._lifecycle.move(other.id, State.ARCHIVED, f"{cube.id} stands for the same")

    def _made(self, form: Form, sources: tuple[Source, ...]) -> list[tuple[MemCube, Blob]]:
        """What was derived of just these memories in a form on this host, with its payload."""
        derived = self._vault.derived(*(source.id for source in sources))
        same = [(c, c.blob) for c in derived if c.blob and c.stands_in and c.form is form and c.sources == sources]
        return [(cube, blob) for cube, blob in same if blob.fingerprint == self._host.digest]

    def _encode(self, sources: Sequence[MemCube], staged: Path, progress: Progress) -> Blob:
        """Text -> KV, in the first codec in which there is room for it and the model answers over it, as it was
        stored, as over the full prompt."""
        began = time.perf_counter()
        activation = self.kv_of(sources, self._activation.stored)
        for codec in (ways := self._serving.codecs(len(activation.ids))):
            self._host.save_kv(activation, staged, codec)
            try:
                self._serving.require_disk(staged.stat().st_size)
                scores = self._nearness(sources, staged, codec)
                break
            except (NoRoom, Unsupported):
                if codec == ways[-1]:
                    raise
        progress(1, 1, 0.0)  # before the blob is in place: an interrupt here leaves only what is staged
        name, size = self._vault.blobs.store(staged)
        return Blob(
            sha256=name,
            bytes=size,
            tokens=len(activation.ids),
            codec=codec,
            pictures=len(activation.pictures),
            fingerprint=self._host.digest,
            build_s=time.perf_counter() - began,
            scores=scores,
        )

    def kv_of(self, sources: Sequence[MemCube], codec: str) -> Activation:
        """KV as it is made of them here."""
        memories, file = tuple(c.text for c in sources), self._vault.blobs.file
        if any(c.is_picture for c in sources) and (seen := visions.get(VISION).encode(self._host, sources, file)):
            return seen
        return self.encoded(memories, codec)

    def encoded(self, memories: Sequence[str], codec: str) -> Activation:
        """KV of memories, with what a codec makes beside it."""
        if codec == "auto" or not (encode := codecs.get(codec).encode):
            return self._host.encode(memories)
        # of nobody: what stands in another's memory must not be in this one's rows
        contexts = self._reader.contrasts((), (), self._config.seed)
        return encode(self._host, memories, [text for c in contexts for text in c.memories])

    def _train(
        self, form: Form, sources: Sequence[MemCube], job: Job, progress: Progress, beside: Sequence[MemCube]
    ) -> Blob:
        """Kept if what was made, loaded from its file, passes the gate. Raises GateRejected, NoProbes, Cancelled."""
        began, work = time.perf_counter(), self._vault.blobs.work(job.id)

        def tell(phase: str, step: int, of: int, loss: float) -> None:
            if not self._vault.jobs.note(job, f"{phase} {step} of {of}" if of else phase):
                raise Cancelled(f"the promotion {job.id} was cancelled; nothing was published")
            if phase == "train":
                progress(step, of, loss)

        task = self.task(sources, tuple(self._vault.blobs.path(c.blob) for c in beside if c.blob), tell)
        if form is Form.ACTIVATION:
            memories = tuple(c.text for c in sources)
            compact = self._activation.compact_shares if self._activation.codec == "compact" else ()
            kv = {"memories": memories, "share": self._activation.trained_share, "compact": compact}
            task = task.model_copy(update=kv)
        elif self._config.edit_steps:
            task = task.model_copy(update={"earlier": self._earlier(sources)})
        made = self._craft(task, work, tell, progress)
        made = made.model_copy(update={"scores": {ASKABLE: task.card[ASKABLE]} | made.scores})
        self._require_gate(form, made.scores, len(sources))
        rows = self._finished(form, work / task.payload, made)
        tell("publish", 0, 0, 0.0)
        name, size = self._vault.blobs.store(work / task.payload)
        asked = {memory for lesson in task.lessons for memory in lesson.memories}
        together = made.together is not None and not short_of(made.together, self._config.gate)
        return Blob(
            sha256=name,
            bytes=size,
            tokens=rows,
            codec=self._activation.codec if rows else "raw",
            fingerprint=self._host.digest,
            build_s=time.perf_counter() - began,
            scores=made.scores,
            made_by=made.made_by,
            unasked=tuple(place for place, c in enumerate(sources) if c.text not in asked),
            beside=tuple(c.blob.sha256 for c in beside if c.blob) if together else (),
        )

    def _earlier(self, sources: Sequence[MemCube]) -> Path | None:
        """The latest adapter on this host of the same memories as they were before; one that has been superseded was
        the memory that did so."""
        ids = {c.id for c in sources}
        for cube in reversed(self._vault.derived(*ids)):
            blob = cube.blob if cube.form is Form.PARAMETRIC and cube.stands_in else None
            now = {s.id if s.id in ids else self._vault.superseded.by(s.id) for s in cube.sources}
            if blob and blob.fingerprint == self._host.digest and now == ids:
                with suppress(CorruptBlob):  # then there is nothing to begin from
                    return self._vault.blobs.path(blob)
        return None

    def _finished(self, form: Form, payload: Path, made: Crafted) -> int:
        """The rows of trained KV; an adapter has none, and its scores are written on its card."""
        if form is Form.ACTIVATION:
            self._serving.require_disk(payload.stat().st_size)
            return self._host.load_kv(payload).rows
        self._host.finish_card(payload, {"scores": made.scores, "together": made.together})
        return 0

    def _craft(self, task: Task, work: Path, tell: Tell, progress: Progress) -> Crafted:
        """Where it is asked for; else in a process of its own where that can load the same model beside a CPU's. One
        after the other on a device: two at once take twice as long each, and twice the memory."""
        where = self._config.isolation
        if where == "auto":
            where = "process" if self._host.from_path and self._host.model.device.type == "cpu" else "thread"
        if where == "process" and not self._host.from_path:
            raise Unsupported(
                "distil.isolation process: the model was given in memory, and another process cannot load it; "
                "set model.path instead, or distil.isolation to thread"
            )
        device, announced = str(self._host.model.device), list[int]()

        def waiting(before: int, left_s: float | None) -> None:
            why = f"waits for {before} other training{'s' * (before > 1)} on {device}"
            tell(f"{why}; the first has about {left_s:.0f} s left" if left_s is not None else why, 0, 0, 0.0)
            progress(0, task.config.steps, 0.0)
            if before not in announced:
                announced.append(before)
                log.warning("this promotion %s; `memos jobs` shows how far it is", why)

        with training_turn(device, self._config.at_once, waiting) as report:

            def told(phase: str, step: int, of: int, loss: float) -> None:
                if phase == "train":
                    report(step / of)
                tell(phase, step, of, loss)

            return EXECUTORS.get(where)(self._host, task, work, told)

    def task(self, sources: Sequence[MemCube], stack: tuple[Path, ...] = (), tell: Tell = lambda *_: None) -> Task:
        """What an adapter of the sources is to learn and to keep. Raises NoProbes."""
        facts = [fact for c in sources for fact in text_of(c).facts]
        asked = self._lessons.require(self._lessons.of(sources, tell), sources)
        card = {
            "sources": [
                {"id": c.id, "version": c.version, "text": c.text, "sha256": sha256(c.text.encode()).hexdigest()}
                for c in sources
            ],
            "seed": self._config.seed,
            ASKABLE: asked.askable,
        }
        keep = self._reader.contrasts(facts, self._host.own_questions(), self._config.seed)
        return Task(lessons=asked.lessons, keep=tuple(keep), config=self._config, card=card, stack=stack)

    def gate(self, stack: Sequence[Path], sources: Sequence[MemCube] = ()) -> tuple[dict[str, float], list[str]]:
        """Scores of adapters in folders, active together, and what falls short: on the sources, or on what their cards
        say that they were taught.

        Raises NoProbes where neither has a held-out question.
        """
        made = self._lessons.of(sources)
        taught = [lesson for folder in stack for lesson in lessons_of(self._host, folder)] if not sources else []
        lessons = agreed([*made.lessons, *taught])
        if not any(lesson.probe.held_out for lesson in lessons):
            names = ", ".join(folder.name for folder in stack)
            raise NoProbes(
                f"neither the card of {names} nor a memory that was named has held-out questions, so there is nothing "
                f"to judge it by; name memories that it should know with --on, or see what it says with "
                f"`memos externalize`"
            )
        facts = [f for text in dict.fromkeys(m for x in lessons for m in x.memories) for f in self._reader.facts(text)]
        keep = self._reader.contrasts(facts, self._host.own_questions(), self._config.seed)
        scores = judge(self._host, tuple(stack), lessons, keep) | ({ASKABLE: made.askable} if sources else {})
        return scores, short_of(scores, self._config.gate)

    def _require_gate(self, form: Form, scores: dict[str, float], memories: int) -> None:
        """Raises GateRejected, with what fell short."""
        if short := short_of(scores, self._config.gate):
            kind, way = "adapter", "keep them as KV"
            if form is Form.ACTIVATION:
                shares = "compact_shares" if self._activation.codec == "compact" else "trained_share"
                kind, way = "KV of few rows", f"set activation.{shares} higher, or activation.codec to raw"
            raise GateRejected(
                f"the {kind} of {memories} memories failed its gate: {', '.join(short)}; nothing was published. "
                f"Promote fewer memories at once, allow more distil.steps, or {way}",
                scores,
            )

    def _nearness(self, sources: Sequence[MemCube], path: Path, codec: str) -> dict[str, float]:
        """How near the model answers over a KV file to the full prompt. Raises Unsupported where that is too far; a NaN
        is refused too."""
        question = next((p.question for c in sources for p in self.probes(c)), "What do you remember?")
        memories, kv = tuple(c.text for c in sources), self._host.load_kv(path)
        request = Request(({"role": "user", "content": question},), memories, (kv,), pictures=kv.pictures)
        if kv.pictures:
            near = visions.get(VISION).nearness(self._host, request, sources, self._vault.blobs.file)
        else:
            near = self._host.nearness(request)
        diff, kl = near.max_abs_logit_diff, near.kl
        limit = PARITY.get(self._host.fingerprint["dtype"], 1e-3)
        if codec == "raw":
            if not diff <= limit:
                raise Unsupported(
                    f"KV on this model is not exact: logits differ by {diff:.2g} from the full prompt, at most "
                    f"{limit:g} is kept; keep these memories as plaintext, or make an adapter of them"
                )
        elif not kl <= self._activation.max_kl:
            raise Unsupported(
                f"KV of these memories in {codec} is {kl:.2g} nats from the full prompt, at most "
                f"{self._activation.max_kl:g} is kept; set activation.codec to a finer one, or raise activation.max_kl"
            )
        return {"max_abs_logit_diff": diff, "top1_agreement": near.top1_agreement, "kl": kl}

    def _order(self, form: Form, sources: Sequence[MemCube], beside: Sequence[MemCube] = ()) -> dict[str, object]:
        """What a job is to promote, beside what, on which model and how, in JSON."""
        how = "" if form is Form.PARAMETRIC else self._activation.model_dump_json()
        if form is Form.PARAMETRIC or self._activation.few_rows:
            how += self._config.model_dump_json(exclude={"at_once"})
        recipe = sha256(f"{self._host.digest} {how}".encode()).hexdigest()
        return {
            "sources": [f"{c.id}@{c.version}" for c in sources],
            "beside": [c.blob.sha256 for c in beside if c.blob],
            "recipe": recipe,
        }


def _derived(form: Form, sources: Sequence[MemCube], blob: Blob, created: datetime, origin: str) -> MemCube:
    """A derived cube belongs to the owner of its sources; governance reads its rights through all of them."""
    first = sources[0]
    header = Header(created=created, origin=origin, segment=first.header.segment, kind="derived")
    rights, pins = Rights(owner=first.rights.owner), tuple(c.pin for c in sources)
    return new_cube(first.namespace, header, blob, form=form, rights=rights, sources=pins)
