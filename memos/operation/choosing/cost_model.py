"""Predicts how long each way to put memories in front of the model takes here; measures nothing itself.

The constants come from the host, which measures them on this machine. The way that a request's memories go is the
one that is predicted to bring its first token soonest: read as text, KV from where it lies, or KV of which some is
computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from memos.cube import Frozen

if TYPE_CHECKING:
    from memos.config import FidelityConfig

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
