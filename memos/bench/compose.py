"""`memos bench compose`: compares composed KV of several cubes at each fidelity level with the full prompt."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memos.bench.scenes import Scene, scene
from memos.config import DecodeConfig, FidelityConfig
from memos.cube import Probe
from memos.errors import Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.kv.compose import Motion, compose
from memos.infrastructure.host.model.decode import ModelAnswer
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.teach import least_share
from memos.plugins.progress import Show

log = logging.getLogger("memos")
CUBES = (1, 2, 4, 8, 16)
DECODE = DecodeConfig(max_new_tokens=16)
LADDER = (
    FidelityConfig(level="L0"),
    FidelityConfig(level="L1"),
    FidelityConfig(level="L2", first_tokens=2),
    FidelityConfig(level="L2", first_tokens=4),
    FidelityConfig(level="L3", first_tokens=0, share=0.1),
    FidelityConfig(level="L3"),
    FidelityConfig(level="L4"),
)


@dataclass
class Tally:
    """What a level gave, question by question."""

    kl: list[float] = field(default_factory=list)
    top1: list[bool] = field(default_factory=list)
    agree: list[bool] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    two: list[bool] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)
    recompute: list[float] = field(default_factory=list)
    operations: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float | None]:
        mean = statistics.fmean
        return {
            "questions": len(self.right),
            "recompute": mean(self.recompute),
            "operations": mean(self.operations),
            "kl": mean(self.kl),
            "top1_agreement": mean(self.top1),
            "decision_agreement": mean(self.agree),
            "decision_agreement_low": least_share(sum(self.agree), len(self.agree)),
            "accuracy": mean(self.right),
            "accuracy_two_cubes": mean(self.two) if self.two else None,
            "ttft_ms": statistics.median(self.ttft_ms),
        }


def bench_compose(
    host: Host,
    questions: int,
    seed: int,
    show: Show,
    counts: Sequence[int] = CUBES,
    encode: Callable[[Sequence[str]], Activation] | None = None,
    ladder: Sequence[FidelityConfig] = LADDER,
) -> dict[str, Any]:
    """Rows of each level of the ladder and number of cubes. encode: KV of a cube, where not the model alone makes it.

    recompute: share of the memory's tokens that went through the model; operations: tokens that did, the question's
    too, as a share of the full prompt's; kl, top1_agreement: of the first answer token, against the full prompt;
    decision_agreement: the same whole answer, and what its share is above with 95 % certainty (_low); ttft_ms: median,
    KV in memory, nothing kept from an earlier question.
    """
    levels, naive = [], []
    can = host.capability
    possible = {"L0": can.exact, "L1": can.composable, "L2": can.renewal, "L3": can.renewal, "L4": True}
    if not can.exact:
        raise Unsupported(f"there is no KV to measure: {can.why}")
    encode = encode or host.encode
    if encode(scene(f"{seed}", 1).cubes[0]).trained:  # has no rows that could be computed anew
        possible |= {"L0": False, "L2": False, "L3": False}
    ladder = [fidelity for fidelity in ladder if possible[fidelity.level]]
    for cubes in counts:
        if not _fits(host, scene(f"{seed}:{cubes}:0", cubes)):
            log.warning("%d cubes do not fit this model; they are left out", cubes)
            continue
        tallies = {fidelity: Tally() for fidelity in ladder}
        unmoved = Tally()
        asked = 0
        for drawn, probes in _scenes(f"{seed}:{cubes}", cubes, questions):
            pasts = tuple(map(encode, drawn.cubes))
            for probe in probes:
                ask = Request(({"role": "user", "content": probe.question},), sum(drawn.cubes, ()), pasts)
                full, two = host.answer(replace(ask, pasts=()), DECODE), probe in drawn.two
                for fidelity, tally in tallies.items():
                    host.release()  # so that L0 begins with what is encoded, not with the last question's prefix
                    _note(host, replace(ask, fidelity=fidelity), full, probe, two, tally)
                if can.composable:
                    _note(host, _naive(host, ask), full, probe, two, unmoved)
                asked += 1
                show(f"{cubes} cubes", asked, questions)
        for fidelity, tally in tallies.items():
            setting = fidelity.model_dump(include={"level", "first_tokens", "share"})
            levels.append({**setting, "n_cubes": cubes, **tally.row()})
        if can.composable:
            naive.append({"n_cubes": cubes, **unmoved.row()})
    return {"model": host.describe(), "levels": levels, "naive": naive}


def _fits(host: Host, drawn: Scene) -> bool:
    """With room for the question and the answer, and for scenes that are a little longer."""
    most = [n for n in (host.decoder.context, host.capability.limit, host.capability.motion_limit) if n]
    memory = len(host.prompts.prefix(sum(drawn.cubes, ())))
    return memory * 1.25 + 64 <= min(most, default=memory * 2 + 64)


def _scenes(key: str, cubes: int, questions: int) -> Iterator[tuple[Scene, list[Probe]]]:
    n = 0
    while questions > 0:
        drawn = scene(f"{key}:{n}", cubes)
        probes = [*drawn.two, *drawn.one][:questions]
        yield drawn, probes
        questions, n = questions - len(probes), n + 1


def _naive(host: Host, ask: Request) -> Request:
    """The named alternative: caches put one after the other as they are."""
    still = Motion(((None, None),) * len(ask.pasts[0].layers))
    return replace(ask, pasts=(compose(ask.pasts, len(host.head), still),))


def _note(host: Host, ask: Request, full: ModelAnswer, probe: Probe, two: bool, tally: Tally) -> None:
    done = host.answer(ask, DECODE)
    near = host.nearness(ask)
    kl, top = near.kl, near.same_first
    memory = sum(len(past.ids) for past in ask.pasts) - (len(ask.pasts) - 1) * len(host.head)
    tokens = full.prompt_tokens
    question = tokens - memory
    extended = memory - len(ask.pasts[0].ids) if ask.fidelity.level == "L0" else 0  # encoded after the first cube
    through = done.prompt_tokens + extended
    scored = question if ask.fidelity.level == "L3" else 0  # the question is read once more to choose rows
    tally.recompute.append((through - question) / memory)
    tally.operations.append((through + scored) / tokens)
    tally.kl.append(kl)
    tally.top1.append(top)
    tally.agree.append(done.text == full.text)
    tally.right.append(probe.holds(done.text))
    if two:
        tally.two.append(probe.holds(done.text))
    tally.ttft_ms.append(done.ttft_s * 1e3)
