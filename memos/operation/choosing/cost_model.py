"""Predicts how long each way to put memories in front of the model takes here, and chooses one; measures nothing.

The constants come from the host, which measures them on this machine. The way that a request's memories go is the
one that is predicted to bring its first token soonest: read as text, KV from where it lies, or KV of which some is
computed anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from memos.config import FidelityConfig, SchedulerConfig
from memos.cube import Frozen, MemCube
from memos.errors import NoRoom

if TYPE_CHECKING:
    from memos.operation.choosing.mem_scheduler import Admission
    from memos.operation.policies.policy import Policy, Segment

log = logging.getLogger("memos")
# KV has to be predicted faster than text by so much: the constants are not known better than that
WORTHWHILE_RATIO = 1.03
USUAL_QUESTION_TOKENS = 16
MemoryTier = Literal["device", "host"]
_FASTEST, _LEARN = 8.0, 0.3  # one request, which something may have disturbed, moves the pace by a part only
_TELLING = 0.2  # the share of reading in a request from which on it tells how fast reading is


@dataclass(frozen=True)
class Lying:
    """KV of so many tokens, and where it is: device, host, cache (of the file), or disk.

    tokens: of its own; what all caches begin with counts for the first one only.
    """

    tokens: int
    place: str
    codec: str = "raw"


@dataclass(frozen=True)
class Way:
    """So many of the admitted KV caches, put together at a level (None without any), and the rest as text.

    seconds: to the first token, as predicted; bringing: those of them in which the model does nothing.
    """

    kvs: int
    level: FidelityConfig | None
    seconds: float
    bringing: float = 0.0


class Costs(Frozen):
    """Seconds on this machine for this model.

    read: (tokens, seconds) of a forward over nothing, rising. The rest is seconds a token: `past` and `attend` for
    each token that lies before (attend: times each token that is read), `move` to put KV in another place, `renew`
    more where rows of it are computed anew, `look` times each token of the question to find which. `load` by
    "place codec": (seconds, seconds a token).
    """

    read: Annotated[tuple[tuple[int, float], ...], Field(min_length=2)]
    attend: float = 0.0
    past: float = 0.0
    move: float = 0.0
    renew: float = 0.0
    look: float = 0.0
    bytes: float = 0.0  # of KV a token, in memory
    layers: int = 1
    gpu: bool = False  # the device has memory of its own
    pace: float = 1.0  # how many times as long the model takes now as when it was measured; see `paced`
    load: Mapping[str, tuple[float, float]] = {}

    def forward(self, tokens: int, past: int = 0) -> float:
        """To read so many tokens after so many that are there."""
        return self.pace * (self._alone(tokens) + past * (self.past + tokens * self.attend))

    def _alone(self, tokens: int) -> float:
        for (n, seconds), (m, later) in pairwise(self.read):
            if tokens <= m:
                return seconds + (later - seconds) * max(0, tokens - n) / (m - n)
        (n, seconds), (m, later) = self.read[-2:]
        beyond = tokens - m  # attention, which grows with the square, is in the slope up to here
        return later + beyond * ((later - seconds) / (m - n) + self.attend * (beyond + m - n) / 2)

    def bring(self, lying: Lying) -> float:
        """To have it on the device."""
        fixed, each = self.load.get(f"{lying.place} {lying.codec}", (0.0, 0.0))
        return fixed + each * lying.tokens

    def first_token(
        self, kvs: Sequence[Lying], there: int, fidelity: FidelityConfig, text: int, question: int
    ) -> float:
        """With KV of the first memories, `text` tokens of others and the question.

        there: how many of `kvs` lie as one exact prefix already, which only L0 uses.
        """
        past, tail = sum(kv.tokens for kv in kvs), text + question
        coming = [self.bring(kv) for kv in kvs]
        if len(kvs) <= 1:
            reading = self.forward(tail, past)
            if not kvs:
                return reading
            # layers are waited for while earlier ones are read; what the processor itself does for them is not hidden
            work = 0.0 if self.gpu else min(coming[0], self.bring(replace(kvs[0], place="cache")))
            wait = coming[0] - work
            return work + wait / self.layers + max(wait * (1 - 1 / self.layers), reading)
        later = past - kvs[0].tokens
        match fidelity.level:
            case "L0":
                kept = sum(kv.tokens for kv in kvs[: max(1, there)])
                return coming[0] + self.forward(past - kept + tail, kept)  # the others are named, not waited for
            case "L1":
                return sum(coming) + self.pace * past * self.move + self.forward(tail, past)
        rows = min(later, fidelity.first_tokens * (len(kvs) - 1))
        found = 0.0
        if fidelity.level == "L3":
            rows += round(fidelity.share * (later - rows))
            found = self.forward(tail, past) + self.pace * past * tail * self.look
        anew = self.forward(rows + tail, past) + self.pace * past * (self.renew + self.move)
        return sum(coming) + found + anew

    def paced(self, way: Way, took: float) -> Costs:
        """After a request that went this way: a machine that is busier than it was when it was measured is followed."""
        reading = way.seconds - way.bringing
        if reading < _TELLING * way.seconds:
            return self
        now = min(_FASTEST, max(1 / _FASTEST, self.pace * (took - way.bringing) / reading))
        return self.model_copy(update={"pace": self.pace + _LEARN * (now - self.pace)})


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
            size, room = (sum(at.lying[kv.id].tokens for kv in kvs) * at.costs.bytes, self._room(at.costs.gpu)[0][1])
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

        def worth(kv: ResidentKV) -> float:
            away = Lying(kv.tokens, "disk", kv.cube.blob.stored if kv.cube.blob else "raw")
            uses = expected.get(kv.name, 0.0) if expected else self._policy.heat([kv.cube], now)
            seconds = costs.bring(away) or kv.tokens  # as good as known, where nothing is measured
            return uses * seconds / max(1, kv.bytes)

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
