"""Promotion: plaintext cubes -> one derived cube, as a transaction. Knows how each form is built and proven.

    known already? -> job -> stage -> build -> prove -> store -> publish by compare-and-swap -> job done

Whatever fails or is killed before the publish leaves no cube: the job ends as undone, and what was staged is
removed, by this process or by the next one that opens the vault. Decides nothing about rights or about when
to promote.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from memos.config import ActivationConfig, DistilConfig
from memos.cube import Blob, Form, Header, MemCube, Probe, Rights, Source, State, Text, new_id
from memos.errors import CorruptBlob, GateRejected, NoProbes, Unsupported
from memos.infrastructure.host.host import Host, Lesson, Request
from memos.infrastructure.mem_vault import MemVault
from memos.interface.mem_reader import MemReader
from memos.operation.mem_lifecycle import MemLifecycle

log = logging.getLogger("memos")
Progress = Callable[[int, int, float], None]  # (step, most steps, loss)
# Largest |logit difference| from the full prompt at which a new KV cache is kept, by dtype.
PARITY = {"bfloat16": 0.5, "float16": 0.5}  # 1e-3 for the others


class Transitions:
    """Builds derived cubes on one host and publishes them."""

    def __init__(
        self,
        vault: MemVault,
        lifecycle: MemLifecycle,
        reader: MemReader,
        host: Host,
        require_disk: Callable[[int], None],
        config: DistilConfig,
        activation: ActivationConfig,
    ) -> None:
        self._vault, self._lifecycle, self._reader, self._host, self._config = vault, lifecycle, reader, host, config
        self._activation, self._require_disk = activation, require_disk

    def promote(self, form: Form, sources: Sequence[MemCube], progress: Progress) -> MemCube:
        """One cube of the sources, which are plaintext and in canonical order, in the form; see MemOS.promote."""
        if (known := self._known(form, sources)) is not None:
            return known
        job = self._vault.start_job(f"promote to {form}", _order(sources))
        blob = None
        try:
            with self._vault.staging() as staged:
                build = self._encode if form is Form.ACTIVATION else self._distil
                blob = build(sources, staged, progress)
                with self._vault.transaction():
                    cube = self._lifecycle.publish(_derived(form, sources, blob))
                    self._vault.end_job(job, "done", cube.id)
        except BaseException as error:  # an interrupt too: the job is undone whatever ended it
            if blob is not None:
                self._vault.discard(blob.sha256)
            self._vault.end_job(job, "undone", f"{type(error).__name__}: {error}")
            raise
        return cube

    def refused(self, form: Form, sources: Sequence[MemCube]) -> bool:
        """True if these memories, as they are now, were built in this form before and did not prove themselves."""
        tried = self._vault.ended_jobs(f"promote to {form}", "undone")
        verdicts = tuple(error.__name__ for error in (GateRejected, NoProbes, Unsupported))
        return any(job.payload == _order(sources) and job.note.startswith(verdicts) for job in tried)

    def probes(self, cube: MemCube) -> list[Probe]:
        """Questions that tell whether a memory is remembered: the user's own, and those of its facts."""
        return [*_text(cube).probes, *self._reader.probes(_text(cube).facts)]

    def _known(self, form: Form, sources: Sequence[MemCube]) -> MemCube | None:
        """The sound derived cube of just these memories on this host; taken back into use if it was given up."""
        wanted = _pinned(sources)
        for cube in self._vault.derived(*(c.id for c in sources)):
            if cube.form is not form or cube.sources != wanted:
                continue
            if cube.blob is None or cube.blob.fingerprint != self._host.digest:
                continue
            try:
                self._vault.blob_path(cube.blob)
            except CorruptBlob as error:
                log.warning("building again: %s", error)
                self._lifecycle.delete(cube.id)
                continue
            if cube.state is not State.ARCHIVED:
                return cube
            return self._lifecycle.move(cube.id, State.ACTIVATED, "promoted again")
        return None

    def _encode(self, sources: Sequence[MemCube], staged: Path, progress: Progress) -> Blob:
        """Text -> KV, kept if the model answers over it, as it was stored, as over the full prompt."""
        began = time.perf_counter()
        memories = tuple(c.text for c in sources)
        activation = self._host.encode(memories)
        question = next((p.question for c in sources for p in self.probes(c)), "What do you remember?")
        self._host.save_kv(activation, staged, self._activation.codec)
        self._require_disk(staged.stat().st_size)
        stored = (self._host.load_kv(staged),)
        asked = Request(({"role": "user", "content": question},), memories, stored)
        near = self._host.nearness(asked)
        self._require_near(near.max_abs_logit_diff, near.kl)
        progress(1, 1, 0.0)  # before the blob is in place: an interrupt here leaves only what is staged
        sha256, size = self._vault.store(staged)
        return Blob(
            sha256=sha256,
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

    def _require_near(self, diff: float, kl: float) -> None:
        """Raises Unsupported; a NaN is refused too."""
        codec, limit = self._activation.codec, PARITY.get(self._host.fingerprint["dtype"], 1e-3)
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

    def _distil(self, sources: Sequence[MemCube], staged: Path, progress: Progress) -> Blob:
        """Text -> LoRA, kept if the adapter, loaded from its file, passes the gate."""
        began = time.perf_counter()
        # each probe is taught over its own memory: the teacher has nothing else to confuse it with
        lessons = [Lesson((c.text,), probe) for c in sources for probe in self.probes(c)]
        if not lessons:
            raise NoProbes(
                f"no question can be made of {', '.join(c.id for c in sources)}: the reader finds no (subject, "
                f"relation, object) in them; add them with probes=[Probe(question=…, answer=…)], or keep them as "
                f"plaintext or KV"
            )
        facts = [fact for c in sources for fact in _text(c).facts]
        keep = self._reader.contrasts(facts, self._host.own_questions(), self._config.seed)
        card = {
            "sources": [{"id": c.id, "version": c.version, "text": c.text} for c in sources],
            "probes": [lesson.probe.model_dump() for lesson in lessons],
        }
        self._host.distil(lessons, keep, self._config, staged, card, progress)
        scores = self._host.gate(staged, lessons, keep)
        self._require(scores, len(sources))
        self._host.finish_card(staged, scores)
        sha256, size = self._vault.store(staged)
        return Blob(
            sha256=sha256,
            bytes=size,
            fingerprint=self._host.digest,
            build_s=time.perf_counter() - began,
            scores=scores,
        )

    def _require(self, scores: dict[str, float], memories: int) -> None:
        """Raises GateRejected, with what fell short."""
        least = self._config.gate.model_dump()
        short = [
            f"{name} {scores[name]:.3f} (at least {least[name]:g})" for name in least if scores[name] < least[name]
        ]
        if short:
            raise GateRejected(
                f"the adapter of {memories} memories failed its gate: {', '.join(short)}; nothing was published. "
                f"Promote fewer memories at once, allow more distil.steps, or keep them as KV",
                scores,
            )


def _derived(form: Form, sources: Sequence[MemCube], blob: Blob) -> MemCube:
    """A derived cube belongs to the owner of its sources; governance reads its rights through all of them."""
    first = sources[0]
    return MemCube(
        id=new_id(),
        form=form,
        namespace=first.namespace,
        rights=Rights(owner=first.rights.owner),
        header=Header(
            created=datetime.now(timezone.utc), origin="promotion", segment=first.header.segment, kind="derived"
        ),
        payload=blob,
        sources=_pinned(sources),
    )


def _order(sources: Sequence[MemCube]) -> dict[str, list[str]]:
    """What a job was to promote, in JSON."""
    return {"sources": [f"{c.id}@{c.version}" for c in sources]}


def _pinned(sources: Sequence[MemCube]) -> tuple[Source, ...]:
    return tuple(Source(id=c.id, version=c.version) for c in sources)


def _text(cube: MemCube) -> Text:
    assert isinstance(cube.payload, Text)  # promote takes plaintext cubes
    return cube.payload
