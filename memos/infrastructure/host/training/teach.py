"""Defines what an adapter or trained KV is to be taught, and judges what it can do then; knows no cubes.

An executor (engines.py) makes of a `Task` what came of it, `Crafted`; `judge` tells what that does when it is loaded
from its files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from memos.config import DistilConfig, GateConfig
from memos.cube import AT_LEAST, Contrast, Frozen, Lesson, MadeBy, Probe
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.forward import CausalLM, Forwards
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.training.rows import Cartridge, drift, teacher_rows

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

Tell = Callable[[str, int, int, float], None]  # (phase, step, most steps, loss)
ADAPTER, KV = "adapter", "kv"  # in the folder of a job
_ALWAYS_SCORED = ("reliability", "generality", "locality", "in_context")  # judged, and 0 where nothing could be asked
_DRIFT_TOKENS = 20  # of a distribution, the likeliest, that a drift is measured on


class Task(Frozen):
    """What an adapter, or trained KV, is to learn and to keep; all of it can travel to another process.

    stack: folders of earlier adapters that it may be active with, in any subset. memories: what KV is to stand for, in
    order; none: an adapter is to be made. share: of the tokens of the memories, for which KV is to have rows. compact:
    such shares, of which the first that passes the gate is taken; they are not trained. earlier: an adapter of the same
    memories as they were before, which is to be brought up to date if that passes the gate.
    """

    lessons: tuple[Lesson, ...]
    keep: tuple[Contrast, ...]
    config: DistilConfig
    card: dict[str, Any] = Field(default_factory=dict)
    stack: tuple[Path, ...] = ()
    memories: tuple[str, ...] = ()
    share: float = 1.0
    compact: tuple[float, ...] = ()
    earlier: Path | None = None

    @property
    def payload(self) -> str:
        """The name, in the folder of a job, of what is made."""
        return KV if self.memories else ADAPTER


class Crafted(Frozen):
    """What came of a task: scores of what was made, alone, and of all together with `stack`. made_by: of an adapter."""

    scores: dict[str, float]
    together: dict[str, float] | None = None
    made_by: MadeBy | None = None


def lessons_of(host: Host, folder: Path) -> list[Lesson]:
    """What an adapter was taught, by its card. Raises FingerprintMismatch, CorruptBlob."""
    return [Lesson.model_validate(lesson) for lesson in lora.read_card(folder, host.fingerprint).get("lessons", [])]


def agreed(lessons: Sequence[Lesson]) -> list[Lesson]:
    """Without the questions that two of them answer differently, as who keeps a cat where two people do."""
    answers: dict[str, set[str]] = {}
    for lesson in lessons:
        answers.setdefault(lesson.probe.question, set()).add(lesson.probe.answer.casefold())
    return [lesson for lesson in lessons if len(answers[lesson.probe.question]) == 1]


@dataclass(frozen=True)
class _Subject:
    """What is judged. model: for one forward over prompts; decoded: what answers, None for the base; past: stands for
    the first tokens of every prompt, which are those of `before`."""

    model: Forwards
    decoded: CausalLM | None = None
    past: Activation | None = None
    before: tuple[str, ...] = ()

    def cut(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """What is read of them."""
        return [ids[len(self.past.ids) if self.past else 0 :] for ids in prompts]

    def greedy(self, host: Host, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return host.greedy(self.cut(prompts), self.decoded, self.past)


def judge(host: Host, stack: Stack, lessons: Sequence[Lesson], keep: Sequence[Contrast]) -> dict[str, float]:
    """Scores of saved adapters, loaded cold and active together, by free greedy generation; see GateConfig.

    Beside what GateConfig judges: reversed (held-out questions for the subject), abstention (of locality, those that
    the model has no answer to by heart), portability (recall while the prompt holds other memories); and of each share
    what it is at least, with 95 % certainty.
    """
    adapted = host.cold(stack)
    return _judged(host, _Subject(adapted, adapted), lessons, keep)


def judge_kv(
    host: Host, path: Path, memories: tuple[str, ...], lessons: Sequence[Lesson], keep: Sequence[Contrast]
) -> dict[str, float]:
    """Scores of saved KV that stands for the memories, as `judge`: what must stay is what the model says over their
    text."""
    kv = host.load_kv(path)
    return _judged(host, _Subject(Cartridge(host.model, kv), None, kv, memories), lessons, keep)


def _judged(host: Host, subject: _Subject, lessons: Sequence[Lesson], keep: Sequence[Contrast]) -> dict[str, float]:
    before = subject.before
    recalled = subject.greedy(host, [host.ids_of(x.probe.question, before) for x in lessons])
    right = [x.probe.holds(host.text_of(ids)) for x, ids in zip(lessons, recalled, strict=True)]
    kept = as_answered(host, [k for k in keep if k.held_out], before)
    prompts = [host.ids_of(k.question, (*before, *k.memories)) for k, _ in kept]
    now = subject.greedy(host, prompts)
    same = {k: a == b for (k, a), b in zip(kept, now, strict=True)}
    other = next((k.memories for k in same if k.memories and not k.contradicts), ())
    asked = [x for x in lessons if x.probe.held_out]
    carried = subject.greedy(host, [host.ids_of(x.probe.question, (*before, *other)) for x in asked])
    answered = list(zip(right, (x.probe for x in lessons), strict=True))
    outcomes = {
        "reliability": [ok for ok, probe in answered if not probe.held_out],
        "generality": [ok for ok, probe in answered if probe.held_out],
        "reversed": [ok for ok, probe in answered if probe.held_out and probe.reversed],
        "locality": [ok for k, ok in same.items() if not k.memories],
        "abstention": [ok for k, ok in same.items() if not k.memories and not k.known],
        "in_context": [ok for k, ok in same.items() if k.memories],
        "override": [ok for k, ok in same.items() if k.contradicts],
        "portability": [x.probe.holds(host.text_of(ids)) for x, ids in zip(asked, carried, strict=True)],
    }
    # without facts there is nothing to contradict or to reverse: what was not asked is not judged
    outcomes = {name: each for name, each in outcomes.items() if each or name in _ALWAYS_SCORED}
    scores = {name: share(each) for name, each in outcomes.items()}
    bounds = {f"{name}{AT_LEAST}": least_share(sum(each), len(each)) for name, each in outcomes.items()}
    base = teacher_rows(host.model, prompts, subject.cut(prompts), [ids for _, ids in kept], _DRIFT_TOKENS)
    return scores | {"drift": drift(subject.model, base)} | bounds


def short_of(scores: dict[str, float], gate: GateConfig) -> list[str]:
    """What falls short of the gate, in words; NaN does. What could not be asked is not in the scores."""
    most = {"drift", "outdated"}
    return [
        f"{name} {scores[name]:.3f} (at {'most' if name in most else 'least'} {limit:g})"
        for name, limit in gate.model_dump().items()
        if name in scores and not (scores[name] <= limit if name in most else scores[name] >= limit)
    ]


def as_answered(
    host: Host, keep: Sequence[Contrast], before: tuple[str, ...] = ()
) -> list[tuple[Contrast, tuple[int, ...]]]:
    """Each prompt, with these memories before its own, and the base model's greedy answer; without those that the base
    answers wrong."""
    answers = host.greedy([host.ids_of(k.question, (*before, *k.memories)) for k in keep])
    return [
        (k, ids)
        for k, ids in zip(keep, answers, strict=True)
        if not k.answer or Probe(question=k.question, answer=k.answer).holds(host.text_of(ids))
    ]


def share(outcomes: Sequence[bool]) -> float:
    """Share of True; 0.0 where there was nothing to judge, so that an empty set never passes a gate."""
    return sum(outcomes) / len(outcomes) if outcomes else 0.0


def least_share(passed: int, judged: int, z: float = 1.645) -> float:
    """The share that lies above this with 95 % certainty (the lower end of Wilson's interval); 0.0 of nothing."""
    if not judged:
        return 0.0
    share, spread = passed / judged, z * z / judged
    return (share + spread / 2 - z * math.sqrt(share * (1 - share) / judged + spread / (4 * judged))) / (1 + spread)
