"""Chooses between KV and text, and where KV stays, by the measured costs of this machine.

Knows costs and bytes; knows not how KV is built or stored, nor who asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from memos.config import FidelityConfig, SchedulerConfig
from memos.errors import NoRoom
from memos.operation.choosing.cost_model import Costs, Lying, Way

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.operation.choosing.mem_scheduler import Admission
    from memos.operation.policies.policy import Policy, Segment

log = logging.getLogger("memos")
# KV has to be predicted faster than text by so much: the constants are not known better than that
WORTHWHILE_RATIO = 1.03
USUAL_QUESTION_TOKENS = 16
MemoryTier = Literal["device", "host"]


@dataclass(frozen=True)
class Situation:
    """What a choice between text and KV depends on.

    levels: ways to put several caches together; lying: each cache by its cube's id; there: how many of the first lie
    as one exact prefix already; tokens: of a memory; head: tokens before the first one; question: of what is asked.
    """

    costs: Costs
    levels: Sequence[FidelityConfig]
    lying: Mapping[str, Lying]
    there: int
    tokens: Callable[[str], int]
    head: int
    question: int


@dataclass(frozen=True)
class ResidentKV:
    """KV in memory: the cube it belongs to, and the bytes it takes there."""

    name: str
    cube: MemCube
    bytes: int
    tokens: int


class Ways:
    """Chooses between text and KV, and places KV in memory."""

    def __init__(self, config: SchedulerConfig, policy: Policy) -> None:
        self._config, self._policy = config, policy

    def levels(self, wanted: FidelityConfig, card: dict[str, Any] | None) -> list[FidelityConfig]:
        """Ways to put several caches together that are allowed, the fastest on the card first.

        card: what `memos calibrate` measured. A level is allowed if, with every number of cubes that was tried, its
        answers agreed with the full prompt's often enough; L0 is exact and always allowed. Settings that were not
        measured are used as they are asked for.
        """
        exact = wanted.model_copy(update={"level": "L0"})
        if wanted.level == "L4":
            return []
        if card is None:
            return [exact if wanted.level == "auto" else wanted]
        tried: dict[FidelityConfig, list[dict[str, float]]] = {}
        for row in card["levels"]:
            settings = {name: row[name] for name in ("level", "first_tokens", "share")}
            tried.setdefault(_in_use(wanted.model_copy(update=settings)), []).append(row)
        allowed = {
            level: max(row["ttft_ms"] for row in rows)
            for level, rows in tried.items()
            if min(row["decision_agreement"] for row in rows) >= wanted.agreement and level.level != "L4"
        }
        if wanted.level == "auto":
            return sorted(allowed, key=lambda level: allowed[level]) or [exact]
        if _in_use(wanted) in tried and _in_use(wanted) not in allowed:
            log.warning("%s agrees too seldom with the full prompt on this model; using L0", wanted.level)
            return [exact]
        return [wanted]

    def choose(self, admission: Admission, forced: bool, at: Situation) -> Admission:
        """The admission the way in which its first token is predicted soonest: with fewer KV caches, or all.

        forced: with all of them, whatever it takes. KV that has no room in memory is not used. Raises NoRoom where it
        is forced.
        """
        kvs = admission.activations
        ways = [w for w in self.ways(admission, at) if not forced or w.kvs == len(kvs) or not at.levels]
        if not ways:
            size, room = (
                sum(at.lying[kv.id].tokens for kv in kvs) * at.costs.bytes,
                self._room(at.costs.gpu)[0][1],
            )
            raise NoRoom(
                f"KV of {size:,.0f} bytes does not fit the {room:,} bytes that it may take of memory; ask via "
                f"plaintext, or raise scheduler.{'device' if at.costs.gpu else 'host'}_kv_bytes"
            )
        # of two that are as fast, the one with more KV: it is there for the next request too
        best = min(ways, key=lambda way: (way.seconds * (WORTHWHILE_RATIO if way.kvs else 1), -way.kvs))
        return replace(admission, activations=kvs[: best.kvs], way=best)

    def ways(self, admission: Admission, at: Situation) -> list[Way]:
        """What can be done with an admission, and how long each takes to the first token, as predicted. First: text."""
        kvs, room, costs = admission.activations, self._room(at.costs.gpu)[0][1], at.costs
        bringing_alone = costs.model_copy(update={"pace": 0.0})
        text = sum(at.tokens(c.text) for c in admission.cubes)
        out = [Way(0, None, costs.forward(at.head + text + at.question))]
        for n in range(1, len(kvs) + 1):
            caches = [at.lying[kv.id] for kv in kvs[:n]]
            if sum(kv.tokens for kv in caches) * costs.bytes > room:
                continue
            text = sum(at.tokens(c.text) for c in replace(admission, activations=kvs[:n]).as_text)
            for level in at.levels[: None if n > 1 else 1]:  # one cache is exact at any level
                seconds, bringing = (
                    c.first_token(caches, min(at.there, n), level, text, at.question) for c in (costs, bringing_alone)
                )
                out.append(Way(n, level, seconds, bringing))
        return out

    def place(
        self, held: Sequence[ResidentKV], costs: Costs, now: datetime, expected: Mapping[str, float] | None = None
    ) -> dict[str, MemoryTier]:
        """Where KV that is in memory should stay: what saves most seconds for its bytes nearest to the model, within
        each tier's budget. What is not named should leave memory.

        expected: uses soon, by name. What nothing is foreseen of counts by its heat.
        """
        foreseen = expected or {}

        def worth(kv: ResidentKV) -> float:
            away = Lying(kv.tokens, "disk", kv.cube.blob.stored if kv.cube.blob else "raw")
            uses = foreseen.get(kv.name, 0.0) if foreseen else None
            seconds = costs.bring(away) or kv.tokens  # as good as known, where nothing is measured
            return (self._policy.heat([kv.cube], now) if uses is None else uses) * seconds / max(1, kv.bytes)

        out: dict[str, MemoryTier] = {}
        room = dict(self._room(costs.gpu))
        for kv in sorted(held, key=lambda kv: -worth(kv)):
            tier = next((tier for tier, left in room.items() if kv.bytes <= left), None)
            if tier:
                room[tier] -= kv.bytes
                out[kv.name] = tier
        return out

    def _room(self, gpu: bool) -> list[tuple[MemoryTier, int]]:
        """The bytes of each tier in memory, nearest to the model first; on a CPU the host's memory is the model's."""
        device, host = self._config.device_kv_bytes, self._config.host_kv_bytes
        return [("device", device), ("host", host)] if gpu else [("host", host)]

    def pays(self, segment: Segment, costs: Costs, tokens: Callable[[str], int]) -> bool:
        """True if KV of a group would save more than making it costs, were it used once more than until now."""
        n = sum(tokens(c.text) for c in segment.cubes)
        over_kv = costs.first_token([Lying(n, "cache")], 0, FidelityConfig(), 0, USUAL_QUESTION_TOKENS)
        saves = costs.forward(n + USUAL_QUESTION_TOKENS) - over_kv
        return (max(c.usage.recalls for c in segment.cubes) + 1) * saves > costs.forward(n)


def _in_use(fidelity: FidelityConfig) -> FidelityConfig:
    """Without the settings that its level does not look at, so that two that do the same are the same."""
    unused = {"L2": ("share",), "L3": ()}.get(fidelity.level, ("first_tokens", "share"))
    return fidelity.model_copy(update={name: FidelityConfig.model_fields[name].default for name in unused})
