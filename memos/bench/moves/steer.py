"""The row `steer` of `memos bench moves`: behaviours that the small model is steered to, each judged by its gate."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memos.bench.moves.behaviours import DRAWS, behaviour
from memos.bench.moves.row import Row
from memos.errors import GateRejected
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import share
from memos.plugins.progress import Show
from memos.plugins.steering.direction import randomised
from memos.plugins.steering.make import judge, make
from memos.plugins.steering.values import FOLLOWED, KEPT


@dataclass(frozen=True)
class Steered:
    """A behaviour, how a direction for it was made ("" where none passed), and what the gate found. at_random: how far
    directions of the same lengths in the same places are followed."""

    name: str
    how: str
    scores: dict[str, float]
    tried: dict[str, dict[str, float]]
    at_random: float | None
    seconds: float
    bytes: int


def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
    """groups: of the behaviours, so many. accepted: those that have a direction which passes its gate; what is refused
    steers nothing, so the other figures are of these. same_answer: of the prompts that nothing was learnt from, those
    that follow. locality: of unrelated prompts. control: same_answer under random directions of the same lengths in the
    same places.
    """
    found = steered(host, groups, seed, show)
    passed = [one for one in found if one.how]
    return Row(
        move="steer",
        groups=len(found),
        seconds_p50=statistics.median(one.seconds for one in found),
        bytes_mean=round(_mean([one.bytes for one in passed])),
        same_answer=_mean([one.scores[FOLLOWED] for one in passed]),
        locality=_mean([one.scores[KEPT] for one in passed]),
        accepted=share([bool(one.how) for one in found]),
        control=_mean([one.at_random or 0.0 for one in passed]),
    )


def _mean(figures: Sequence[float]) -> float:
    return statistics.fmean(figures) if figures else 0.0


def steered(host: Host, count: int, seed: int, show: Show) -> list[Steered]:
    """The first so many behaviours of DRAWS."""
    out = list[Steered]()
    for name in list(DRAWS)[:count]:
        with tempfile.TemporaryDirectory() as work:
            out.append(_steered(host, name, seed, Path(work)))
        show("steer", len(out), min(count, len(DRAWS)))
    return out


def _steered(host: Host, name: str, seed: int, work: Path) -> Steered:
    wanted, made, noise = behaviour(name, seed), work / "made", work / "noise"
    began = time.perf_counter()
    try:
        found = make(host, wanted, made, seed)
    except GateRejected as error:
        return Steered(name, "", error.scores, {}, None, time.perf_counter() - began, 0)
    seconds = time.perf_counter() - began
    randomised(made, noise, seed)
    at_random = judge(host, (noise,), *wanted.split()[1:])[FOLLOWED]
    size = sum(file.stat().st_size for file in made.iterdir())
    return Steered(name, found.how, found.scores, found.tried, at_random, seconds, size)
