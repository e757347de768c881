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
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import Blob, Form, Header, MemCube, Probe, Rights, Source, State, Text, new_id
from memos.errors import CorruptBlob, GateRejected, NoProbes, Unsupported
from memos.infrastructure.host.host import Host, Request
from memos.operation.choosing.upkeep import JobKind
from memos.operation.forms.trainer import LessonReader, Progress, Trainer, require_agreement, text_payload

if TYPE_CHECKING:
    from memos.config import ActivationConfig, DistilConfig
    from memos.infrastructure.vault.mem_vault import MemVault
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
        require_disk: Callable[[int], None],
        config: DistilConfig,
        activation: ActivationConfig,
    ) -> None:
        self._vault, self._lifecycle, self._reader, self._host, self._config = vault, lifecycle, reader, host, config
        self._activation, self._require_disk = activation, require_disk
        self._trainer = Trainer(vault, reader, host, require_disk, config, activation)
        self.task, self.gate = self._trainer.task, self._trainer.gate

    def promote(
        self,
        form: Form,
        sources: Sequence[MemCube],
        progress: Progress,
        beside: Sequence[MemCube] = (),
        job: str | None = None,
        require: Callable[[], None] = lambda: None,
    ) -> MemCube:
        """One cube of the sources, which are plaintext and in canonical order, in the form; see MemOS.promote.

        beside: adapters that a new one is to be active with. job: the running one that this is. require: raises where
        no more may be made.
        """
        if (known := self._known(form, sources)) is not None:
            return known
        require()
        trained = form is Form.PARAMETRIC or self._activation.codec == "trained"
        if trained:
            require_agreement(self._reader, sources)
        kind, order = JobKind.promote(form), self._order(form, sources, beside)
        if job:
            self._vault.jobs.describe(job, order)
        else:
            job = self._vault.jobs.resume(kind, order) or self._vault.jobs.start(kind, order)
        blob = None
        try:
            with self._vault.blobs.staging() as staged:
                if trained:
                    blob = self._trainer.train(form, sources, job, progress, beside)
                else:
                    blob = self._encode(sources, staged, progress)
                with self._vault.transaction():
                    cube = self._lifecycle.publish(_derived(form, sources, blob, self._vault.now()))
                    self._replace(cube)
                    self._vault.jobs.end(job, "done", cube.id)
        except BaseException as error:  # an interrupt too: the job is undone whatever ended it
            if blob is not None:
                self._vault.blobs.discard(blob.sha256)
            # what was cut off by a person goes on from its checkpoint, when it is asked for again
            resumable = isinstance(error, KeyboardInterrupt) and trained
            self._vault.jobs.end(job, "interrupted" if resumable else "undone", f"{type(error).__name__}: {error}")
            raise
        return cube

    def refused(self, form: Form, sources: Sequence[MemCube]) -> bool:
        """True if these memories, as they are now, were built in this form before and did not prove themselves."""
        tried, order = self._vault.jobs.all("undone", JobKind.promote(form)), self._order(form, sources)
        verdicts = tuple(error.__name__ for error in (GateRejected, NoProbes, Unsupported))
        return any(job.note.startswith(verdicts) for job in tried if order == job.payload | {"beside": order["beside"]})

    def probes(self, cube: MemCube) -> list[Probe]:
        """Questions that tell whether a memory is remembered: the user's own, and those of its facts."""
        return [*text_payload(cube).probes, *self._reader.probes(text_payload(cube).facts)]

    def _known(self, form: Form, sources: Sequence[MemCube]) -> MemCube | None:
        """The sound derived cube of just these memories on this host; taken back into use if it was given up."""
        wanted = _pinned(sources)
        for cube in self._vault.derived(*(c.id for c in sources)):
            if cube.form is not form or cube.sources != wanted:
                continue
            if cube.blob is None or cube.blob.fingerprint != self._host.digest:
                continue
            if form is Form.ACTIVATION and cube.blob.codec != self._activation.codec:
                continue
            try:
                self._vault.blobs.path(cube.blob)
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
        for other in self._vault.derived(*(s.id for s in cube.sources)):
            same = other.form is cube.form and other.sources == cube.sources and other.id != cube.id
            if same and other.blob and other.blob.fingerprint == self._host.digest and other.state is State.ACTIVATED:
                self._lifecycle.move(other.id, State.ARCHIVED, f"{cube.id} stands for the same")

    def _encode(self, sources: Sequence[MemCube], staged: Path, progress: Progress) -> Blob:
        """Text -> KV, kept if the model answers over it, as it was stored, as over the full prompt."""
        began = time.perf_counter()
        memories = tuple(c.text for c in sources)
        activation = self._host.encode(memories)
        question = self._asked(sources)
        self._host.save_kv(activation, staged, self._activation.stored)
        self._require_disk(staged.stat().st_size)
        stored = (self._host.load_kv(staged),)
        asked = Request(({"role": "user", "content": question},), memories, stored)
        near = self._host.nearness(asked)
        self._require_near(near.max_abs_logit_diff, near.kl, self._activation.codec)
        progress(1, 1, 0.0)  # before the blob is in place: an interrupt here leaves only what is staged
        name, size = self._vault.blobs.store(staged)
        return Blob(
            sha256=name,
            bytes=size,
            tokens=len(activation.ids),
            codec=self._activation.codec,
            fingerprint=self._host.digest,
            build_s=time.perf_counter() - began,
            scores={
                "max_abs_logit_diff": near.max_abs_logit_diff,
                "top1_agreement": near.top1_agreement,
                "kl": near.kl,
            },
        )

    def accept(self, blob: Blob, path: Path, sources: Sequence[MemCube], judged: bool) -> None:
        """Return if KV or an adapter that was made elsewhere, of these memories, can be used here.

        KV must answer as the text does, as if it were made here. An adapter must load; judged: it passes its gate too.
        Raises what stands against it.
        """
        if not sources or any(not isinstance(c.payload, Text) for c in sources):
            raise Unsupported("a tensor is not made of memories that came with it; promote them here")
        if blob.tokens and blob.codec != "trained":
            memories = tuple(c.text for c in sources)
            asked = Request(({"role": "user", "content": self._asked(sources)},), memories, (self._host.load_kv(path),))
            near = self._host.nearness(asked)
            self._require_near(near.max_abs_logit_diff, near.kl, blob.codec)
        elif blob.tokens:
            self._host.load_kv(path)
        else:
            self._host.cold((path,))
            _, short = self.gate([path], sources) if judged else ({}, [])
            if short:
                raise Unsupported(f"adapter {blob.sha256} failed its gate here: {', '.join(short)}; promote anew")

    def _asked(self, sources: Sequence[MemCube]) -> str:
        return next((p.question for c in sources for p in self.probes(c)), "What do you remember?")

    def _require_near(self, diff: float, kl: float, codec: str) -> None:
        """Raises Unsupported; a NaN is refused too."""
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

    def _order(self, form: Form, sources: Sequence[MemCube], beside: Sequence[MemCube] = ()) -> dict[str, object]:
        """What a job is to promote, beside what, on which model and how, in JSON."""
        how = "" if form is Form.PARAMETRIC else self._activation.model_dump_json()
        if form is Form.PARAMETRIC or self._activation.codec == "trained":
            how += self._config.model_dump_json()
        recipe = sha256(f"{self._host.digest} {how}".encode()).hexdigest()
        return {
            "sources": [f"{c.id}@{c.version}" for c in sources],
            "beside": [c.blob.sha256 for c in beside if c.blob],
            "recipe": recipe,
        }


def _derived(form: Form, sources: Sequence[MemCube], blob: Blob, created: datetime) -> MemCube:
    """A derived cube belongs to the owner of its sources; governance reads its rights through all of them."""
    first = sources[0]
    return MemCube(
        id=new_id(),
        form=form,
        namespace=first.namespace,
        rights=Rights(owner=first.rights.owner),
        header=Header(created=created, origin="promotion", segment=first.header.segment, kind="derived"),
        payload=blob,
        sources=_pinned(sources),
    )


def _pinned(sources: Sequence[MemCube]) -> tuple[Source, ...]:
    return tuple(Source(id=c.id, version=c.version) for c in sources)
