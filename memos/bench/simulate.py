"""`memos simulate`: replays a trace and compares which KV each policy keeps in memory with the optimum.

A request uses the KV of one topic group. Where that is in memory, it is a hit; else the group's text is read by the
model, which makes its KV. Then the policy decides: all that is in memory and what was just made stand side by side, and
what is worth least to it leaves until the budget holds, the new one not excepted. So every policy may refuse what is
new, and none but `memos` brings back by itself what was made before: between two requests it may read as many bytes of
KV files as `prefetch` requests use in the mean.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from memos.bench.traces import Access, record, trace
from memos.config import SchedulerConfig
from memos.errors import InputError
from memos.operation.choosing.cost_model import Costs
from memos.operation.choosing.foresight import LIKELY, Floats, Foresight
from memos.plugins.progress import Show

QUESTION = 16  # tokens that follow the memories
# of shape:cpu-126m on 2 cores, from the times to the first token in docs/benchmarks.md
COSTS = Costs(read=((1, 0.012), (167, 0.288), (750, 1.256), (1536, 2.834)), past=5.4e-5, bytes=20_480)
_PAGE = 64  # tokens of a question and its answer, as LoCoMo's turns are long


class Keeping(Protocol):
    """What a policy decides here."""

    def used(self, access: Access) -> None: ...

    def worth(self, groups: Sequence[str], now: float) -> Sequence[float] | Floats:
        """Of each to be in memory; what is worth least leaves."""

    def wanted(self, user: str, now: float) -> Sequence[str]:
        """What may be brought before the next request, the most wanted first."""


class Counting:
    """A policy that ranks by how often and when a group was used."""

    def __init__(self, rank: Callable[[int, float, int, float], float]) -> None:
        """rank: (uses, time of the last one, tokens, now) -> worth."""
        self._rank, self._seen = rank, dict[str, tuple[int, float, int]]()

    def used(self, access: Access) -> None:
        uses, *_ = self._seen.get(access.group, (0,))
        self._seen[access.group] = uses + 1, access.at, access.tokens

    def worth(self, groups: Sequence[str], now: float) -> Sequence[float]:
        return [self._rank(*self._seen[group], now) for group in groups]

    def wanted(self, user: str, now: float) -> Sequence[str]:
        return ()


def _heat(uses: int, last: float, tokens: int, now: float) -> float:
    """MemoryOS's (arXiv 2506.06326, section 3.3), with its constants: visits, pages and recency, each counted once."""
    c = SchedulerConfig()
    return c.alpha * uses + c.beta * tokens / _PAGE + c.gamma * math.exp((last - now) / c.mu_s)


class Memos:
    """By foresight."""

    def __init__(self, prefetch: bool) -> None:
        self._foresight, self._prefetch = Foresight(), prefetch

    def used(self, access: Access) -> None:
        self._foresight.used(access.user, access.group, access.at)

    def worth(self, groups: Sequence[str], now: float) -> Floats:
        return self._foresight.worth(groups, now)

    def wanted(self, user: str, now: float) -> Sequence[str]:
        return [group for group, p in self._foresight.next(user, now) if p >= LIKELY] if self._prefetch else ()


POLICIES: dict[str, Callable[[], Keeping] | None] = {
    "memos": lambda: Memos(prefetch=True),
    "memos-demand": lambda: Memos(prefetch=False),
    "lru": lambda: Counting(lambda uses, last, tokens, now: last),
    "lfu": lambda: Counting(lambda uses, last, tokens, now: uses + 1e-12 * last),
    "memoryos": lambda: Counting(_heat),
    "belady": None,  # knows what comes: `best`
}


@dataclass
class Figures:
    """What a policy came to on a trace; tokens are of memories."""

    requests: int = 0
    requests_hit: int = 0
    tokens: int = 0
    tokens_prefilled: int = 0
    seconds: float = 0.0  # to the first token
    as_text: float = 0.0  # the same without any KV
    moves: int = 0  # KV that came into memory to stay, made or brought
    tokens_moved: int = 0
    prefetched: int = 0
    prefetch_hits: int = 0
    tokens_prefetched: int = 0

    def request(self, tokens: int, there: int, costs: Costs) -> None:
        """Of so many tokens, with KV of some of them."""
        self.requests += 1
        self.requests_hit += there == tokens
        self.tokens += tokens
        self.tokens_prefilled += tokens - there
        self.seconds += costs.forward(tokens - there + QUESTION, there)
        self.as_text += costs.forward(tokens + QUESTION)

    def row(self, best: Figures, costs: Costs) -> dict[str, Any]:
        return {
            "hit_rate": self.hit_rate,
            "of_belady": self.hit_rate / best.hit_rate if best.hit_rate else 1.0,
            "requests": self.requests,
            "request_hit_rate": self.requests_hit / self.requests,
            "ttft_saved": 1 - self.seconds / self.as_text,
            "tokens_prefilled": self.tokens_prefilled,
            "moves": self.moves + self.prefetched,
            "bytes_moved": round(costs.bytes * (self.tokens_moved + self.tokens_prefetched)),
            "prefetched": self.prefetched,
            "prefetch_hits": self.prefetch_hits,
            "prefetch_hit_rate": self.prefetch_hits / self.prefetched if self.prefetched else 0.0,
            "bytes_prefetched": round(costs.bytes * self.tokens_prefetched),
        }

    @property
    def hit_rate(self) -> float:
        return 1 - self.tokens_prefilled / self.tokens


def replay(accesses: Sequence[Access], policy: Keeping, room: int, prefetch: int, costs: Costs) -> Figures:
    """A policy on a trace, with room for KV of so many tokens in memory, and as many to bring after each request."""
    figures = Figures()
    made = dict[str, int]()  # KV files, by group: tokens
    memory = _Memory(room)
    for access in accesses:
        there = access.group in memory.held
        figures.request(access.tokens, access.tokens if there else 0, costs)
        figures.prefetch_hits += access.group in memory.brought
        memory.brought.discard(access.group)
        policy.used(access)
        made[access.group] = access.tokens
        if not there and memory.put([access.group], made, policy, access.at):
            figures.moves += 1
            figures.tokens_moved += access.tokens
        left, coming = prefetch, list[str]()
        for group in policy.wanted(access.user, access.at):
            if group in made and group not in memory.held and made[group] <= left:
                coming.append(group)
                left -= made[group]
        brought = memory.put(coming, made, policy, access.at) if coming else []
        memory.brought.update(brought)
        figures.prefetched += len(brought)
        figures.tokens_prefetched += sum(made[group] for group in brought)
    return figures


class _Memory:
    """KV in memory: of which groups, and which of them were brought and not used since."""

    def __init__(self, room: int) -> None:
        self._room, self._left = room, room
        self.held, self.brought = dict[str, int](), set[str]()

    def put(self, groups: Sequence[str], made: Mapping[str, int], policy: Keeping, now: float) -> list[str]:
        """Let these stand beside what is held; what is worth least leaves. Those that stay are named."""
        fitting = [group for group in groups if made[group] <= self._room]
        self.held.update((group, made[group]) for group in fitting)
        self._left -= sum(made[group] for group in fitting)
        if self._left < 0:
            every = list(self.held)
            coldest = np.argsort(np.array(policy.worth(every, now)), kind="stable")
            for n in coldest.tolist():
                if self._left >= 0:
                    break
                self._left += self.held.pop(every[n])
                self.brought.discard(every[n])
        return [group for group in fitting if group in self.held]


def best(accesses: Sequence[Access], room: int, costs: Costs) -> Figures:
    """Belady's optimum (IBM Systems Journal 5(2), 1966) with bypass: what is used again latest leaves.

    KV is cut here wherever that helps, as if each token were held by itself; so all pieces are alike, the rule is
    optimal, and no policy that fetches on demand finds more tokens in memory, whatever the sizes of its groups.
    """
    figures = Figures()
    again, later = [math.inf] * len(accesses), dict[str, int]()
    for n in reversed(range(len(accesses))):
        again[n] = later.get(accesses[n].group, math.inf)
        later[accesses[n].group] = n
    held, left = dict[str, tuple[float, int]](), room  # by group: when it is used again, tokens
    latest = list[tuple[float, str]]()  # a heap of what is held; entries that no longer hold are passed over
    for access, use in zip(accesses, again, strict=True):
        _, there = held.pop(access.group, (0.0, 0))
        figures.request(access.tokens, there, costs)
        left += there
        if use == math.inf:
            continue
        held[access.group] = use, access.tokens
        left -= access.tokens
        heapq.heappush(latest, (-use, access.group))
        while left < 0:
            away, group = heapq.heappop(latest)
            when, tokens = held.get(group, (0.0, 0))
            if when == -away:
                kept = max(0, tokens - -left)
                left += tokens - kept
                held.pop(group)
                if kept:
                    held[group] = when, kept
                    heapq.heappush(latest, (away, group))
        if access.group in held:
            figures.moves += there < held[access.group][1]
            figures.tokens_moved += max(0, held[access.group][1] - there)
    return figures


def simulate(
    names: Sequence[str],
    policies: Sequence[str],
    shares: Sequence[float],
    prefetch: float,
    seed: int,
    folder: Path | None,
    show: Show,
) -> dict[str, Any]:
    """A row for each trace, share and policy. hit_rate: share of the tokens of all requests whose KV was in memory;
    of_belady: that over Belady's. share: of the tokens of all groups of the trace, how many there is room for.
    prefetch_hit_rate: of the KV that was brought, how much was used before it left. folder: traces are written there.

    Raises InputError.
    """
    if wrong := sorted(set(policies) - set(POLICIES)):
        raise InputError(f"no policy {', '.join(wrong)} keeps KV; those that do: {', '.join(POLICIES)}")
    rows = list[dict[str, Any]]()
    for name, accesses in {name: trace(name, seed) for name in names}.items():
        if folder:
            record(accesses, folder / f"{Path(name).stem}.jsonl")
        tokens = {access.group: access.tokens for access in accesses}
        mean = sum(access.tokens for access in accesses) / len(accesses)
        for share in shares:
            room = int(share * sum(tokens.values()))
            bound = best(accesses, room, COSTS)
            for n, policy in enumerate(policies):
                made = POLICIES[policy]
                figures = replay(accesses, made(), room, round(prefetch * mean), COSTS) if made else bound
                rows.append({"trace": Path(name).stem, "policy": policy, "share": share, **figures.row(bound, COSTS)})
                show(f"{Path(name).stem} at {share:.0%}", n + 1, len(policies))
    return {"prefetch": prefetch, "costs": COSTS.model_dump(), "rows": rows}
