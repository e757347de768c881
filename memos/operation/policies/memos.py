"""The default policy: ranks by meaning, words and context, admits whole topic groups, moves by heat.

Pure decisions over values; knows no stores, no tensors, no rights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from memos.config import Config, RetrievalConfig, SchedulerConfig
from memos.cube import Form, MemCube
from memos.operation.policies.policy import Floats, Need, Ranked, Reads, Segment, Signals, best_first


class MemosPolicy:
    """MemOS's rules (2507.03724, section 5.2) with MemoryOS's heat (2506.06326, section 3.3)."""

    reads: Reads = "groups"

    def __init__(self, config: SchedulerConfig, retrieval: RetrievalConfig = RetrievalConfig()) -> None:
        self._config, self._retrieval = config, retrieval

    def score(self, signals: Signals) -> Floats:
        """Meaning and words on one scale, each from 0 to about 1; see RetrievalConfig."""
        r = self._retrieval
        return (
            r.near * signals.near
            + r.tokens * signals.tokens
            + r.words * signals.words
            + r.around * signals.around
            + r.thread * signals.thread
            + r.speaker * signals.speaker
            + r.states * signals.states
            + r.linked * signals.linked
            + r.answers * signals.answers
            + r.seen * signals.seen
            + r.standing * signals.standing
            - r.other * signals.other
            - r.question * signals.question
            + r.length * signals.length
            + self._config.about_bonus * signals.subject
        )

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        """Best first, of equal ones the older; too weak ones left out."""
        return best_first([hit for hit in hits if hit[1] >= self._config.min_score])

    def admit(self, ranked: Ranked, groups: Sequence[Segment], need: Need, room: int) -> list[Segment]:
        """The whole groups of the best-ranked memories, best first, as far as these are nearly as good as the best;
        the scheduler takes of them what there is room for."""
        home = {cube.id: group for group in groups for cube in group.cubes}
        top = ranked[0][1] if ranked else 0.0
        least = min(top, self._config.beside * top)  # scores may be negative
        best = [home[c.id] for c, score in ranked[: self._config.top_k] if c.id in home and score >= least]
        return list({id(group): group for group in best}.values())

    def heat(self, cubes: Sequence[MemCube], now: datetime) -> float:
        """R · (α·N_visit + β·L_interaction + γ) of a topic group, with R = exp(-Δt/μ).

        MemoryOS adds R; here it also multiplies, so that what is no longer used cools down and can be demoted.
        N_visit: recalls of its most recalled memory. L_interaction: its number of memories. Δt: seconds since
        the last recall; a group never recalled is cold (0).
        """
        recalled = [c.usage.last_recalled for c in cubes if c.usage.last_recalled]
        if not recalled:
            return 0.0
        c = self._config
        recency = math.exp(-max(0.0, (now - max(recalled)).total_seconds()) / c.mu_s)
        return recency * (c.alpha * max(cube.usage.recalls for cube in cubes) + c.beta * len(cubes) + c.gamma)

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        """The form a topic group should be promoted to now, or None.

        quiet_s: seconds since its last change. held: the forms it has already.
        """
        if heat >= self._config.parametric_heat and quiet_s >= self._config.stable_s:
            return None if Form.PARAMETRIC in held else Form.PARAMETRIC
        if heat >= self._config.activate_heat and not held:
            return Form.ACTIVATION
        return None

    def cold(self, heat: float) -> bool:
        """True where derived forms are given up: below activate_heat by a margin, so that nothing flaps."""
        return heat < self._config.cool_heat


def make(config: Config) -> MemosPolicy:
    return MemosPolicy(config.scheduler, config.retrieval)
