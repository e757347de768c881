"""Makes a direction that does what it is to do, by the cheapest way that passes its gate; knows no cubes.

a difference of means in one block  ->  a few trained directions in each block, as weak as will do, and in full
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import GateRejected, InputError
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.training.teach import share
from memos.plugins.steering import direction
from memos.plugins.steering.direction import Contrast, Ids, Layer
from memos.plugins.steering.values import FOLLOWED, KEPT, LEAST, Behaviour, Example, Prompt

if TYPE_CHECKING:
    from memos.infrastructure.host.forward import CausalLM
    from memos.infrastructure.host.host import Host

Tell = Callable[[str, int, int], None]  # (phase, step, of)
_WEAKER = (0.55, 0.7, 0.85)  # times what was trained, of which the first that is followed is taken
_FOLLOWS = 0.97  # of what was learnt from
STRENGTHS = (2.0, 1.0, 1.4, 3.0, 4.0)  # times the difference of the means
_WAYS = 3  # of making one
_TUNED = 5  # every fifth of what is learnt from chooses layer and strength


@dataclass(frozen=True)
class Made:
    """How a direction was made, what the gate found, and what it found of every way that was tried. layer, strength: of
    the difference of means."""

    how: str
    scores: dict[str, float]
    tried: dict[str, dict[str, float]]
    layer: str
    strength: float


@dataclass(frozen=True)
class Gate:
    """Prompts as token ids, each with the answer that is right: `wanted` of those that are to be steered and that the
    model answers otherwise by itself, `kept` of the unrelated ones."""

    wanted: tuple[tuple[Ids, Ids], ...]
    kept: tuple[tuple[Ids, Ids], ...]

    @classmethod
    def of(cls, host: Host, examples: Sequence[Example], unrelated: Sequence[Prompt]) -> Gate:
        prompts, others = [ids_of(host, e) for e in examples], [ids_of(host, p) for p in unrelated]
        answers = zip(host.greedy([ids_of(host, e.like) for e in examples]), host.greedy(prompts), strict=True)
        wanted = [(ids, like) for ids, (like, own) in zip(prompts, answers, strict=True) if like != own]
        return cls(tuple(wanted), tuple(zip(others, host.greedy(others), strict=True)))

    def scores(self, host: Host, stack: Stack) -> dict[str, float]:
        """Of directions in folders, active together, loaded cold: the shares that are followed, and kept."""
        under = host.cold(stack)
        return {name: _share(host, under, pairs) for name, pairs in ((FOLLOWED, self.wanted), (KEPT, self.kept))}


def _share(host: Host, under: CausalLM, pairs: Sequence[tuple[Ids, Ids]]) -> float:
    now = host.greedy([ids for ids, _ in pairs], under)
    return share([answer == said for (_, answer), said in zip(pairs, now, strict=True)])


def judge(host: Host, stack: Stack, examples: Sequence[Example], unrelated: Sequence[Prompt]) -> dict[str, float]:
    """Scores of directions in folders, active together. followed: of the examples that the base model does not answer
    so by itself, those answered as it answers `like`; kept: of the unrelated, those answered as before."""
    return Gate.of(host, examples, unrelated).scores(host, stack)


def short_of(scores: dict[str, float]) -> list[str]:
    """What falls short of the gate, in words."""
    return [
        f"{name} {scores[name]:.3f} (at least {LEAST[name]:g})" for name in scores if not scores[name] >= LEAST[name]
    ]


def ids_of(host: Host, prompt: Prompt) -> Ids:
    return host.ids_of(prompt.ask, prompt.memories)


def make(host: Host, behaviour: Behaviour, folder: Path, seed: int = 0, tell: Tell = lambda *_: None) -> Made:
    """A direction that passes the gate, in `folder`. Raises GateRejected where no way does, InputError where the model
    does so already, and Unsupported."""
    learnt, examples, unrelated = behaviour.split()
    contrast = _contrast(host, learnt.examples, learnt.unrelated)
    gate, tried = Gate.of(host, examples, unrelated), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory() as name:
        layer, strength = _best(host, contrast, learnt, Path(name), tell)
        for how, made in _ways(host, contrast, learnt, layer, strength, Path(name), seed):
            tell(f"gate of a {how}", len(tried) + 1, _WAYS)
            tried[how] = gate.scores(host, (made,))
            if not short_of(tried[how]):
                card = lora.read_card(made, host.fingerprint)
                more = {"how": how, "scores": tried[how], "behaviour": behaviour.model_dump(mode="json")}
                shutil.copytree(made, folder)  # which may lie on another disk
                lora.write_card(folder, card | more)
                return Made(how, tried[how], tried, layer.name, strength)
    best = max(tried.values(), key=lambda scores: min(scores[name] / LEAST[name] for name in scores))
    raise GateRejected(
        f"no direction for {behaviour.instruction!r:.80} passed its gate: {', '.join(short_of(best))}; nothing was "
        f"published. Give more examples, of which the unrelated ones are less alike, or keep the instruction as text",
        best,
    )


def _ways(
    host: Host, contrast: Contrast, learnt: Behaviour, layer: Layer, strength: float, work: Path, seed: int
) -> Iterator[tuple[str, Path]]:
    means, several = work / "means", work / "several"
    direction.write(host, layer, strength, means, {"strength": strength})
    yield "difference of means", means
    direction.trained(host, contrast, several, seed, {})
    weakest = _weakest(host, learnt, several)
    yield "trained directions", weakest
    if weakest != several:
        yield "trained directions, at full strength", several


def _weakest(host: Host, learnt: Behaviour, made: Path) -> Path:
    """Directions that were trained, at the least strength at which they are followed: what is weaker changes less."""
    gate = Gate.of(host, learnt.examples[::_TUNED], ())
    for strength in _WEAKER:
        folder = made.with_name(f"{made.name} {strength}")
        direction.scaled(made, folder, strength)
        if gate.scores(host, (folder,))[FOLLOWED] >= _FOLLOWS:
            return folder
    return made


def _contrast(host: Host, examples: Sequence[Example], unrelated: Sequence[Prompt]) -> Contrast:
    """Raises InputError where nothing contrasts."""
    pairs = [(ids_of(host, e), ids_of(host, e.like)) for e in examples]
    wanted, own = host.greedy([like for _, like in pairs]), host.greedy([ids for ids, _ in pairs])
    apart = [pair for pair, answer, said in zip(pairs, wanted, own, strict=True) if answer != said]
    if len(apart) * 2 < len(pairs):
        raise InputError(
            f"the model answers {len(pairs) - len(apart)} of {len(pairs)} examples as their `like` by itself, so there "
            f"is hardly anything to steer; give examples that it answers otherwise"
        )
    prompts, like = zip(*apart, strict=True)
    return Contrast(prompts, like, tuple(ids_of(host, p) for p in unrelated))


def _best(
    host: Host, contrast: Contrast, learnt: Behaviour, work: Path, tell: Tell = lambda *_: None
) -> tuple[Layer, float]:
    """The block that does best at the first of STRENGTHS, and the strength that does best there, on some of what is
    learnt from."""
    gate = Gate.of(host, learnt.examples[::_TUNED], learnt.unrelated[::_TUNED])
    layers = direction.layers(host, contrast)

    def worth(layer: Layer, strength: float) -> float:
        tell("strength", len(seen) + 1, len(layers) + len(STRENGTHS) - 1)
        folder = work / str(len(seen))
        direction.write(host, layer, strength, folder, {})
        scores = gate.scores(host, (folder,))
        seen[layer.name, strength] = min(scores[name] / LEAST[name] for name in scores)
        return seen[layer.name, strength]

    seen = dict[tuple[str, float], float]()
    best = max(layers, key=lambda layer: worth(layer, STRENGTHS[0]))
    return best, max(STRENGTHS, key=lambda s: seen.get((best.name, s)) or worth(best, s))


def behaviour_of(host: Host, folder: Path) -> Behaviour:
    """What a direction was made to do, by its card. Raises FingerprintMismatch, CorruptBlob."""
    return Behaviour.model_validate(lora.read_card(folder, host.fingerprint)["behaviour"])
