"""The values that describe a vault: what there is, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from memos.cube import Frozen, MemCube


class Topic(Frozen):
    """A topic group: the memories that move together."""

    name: str
    heat: float
    ids: tuple[str, ...]


class Warm(Frozen):
    """A memory with the heat of its topic, or of the hottest that it is made of."""

    cube: MemCube
    heat: float


class Overview(Frozen):
    """What there is, for one caller. cubes: how many by "form state". hottest: of each form, the hottest first. tiers:
    where the payload of each KV cache and adapter lies (device, host, disk), by id. used, budget: KV bytes and
    adapters, and how many there may be. uses: of the recalls, those of each form; a text that KV or an adapter stood
    for is counted with both. answering: False where this process has answered nothing yet; then, if another one does,
    only that knows what lies in memory (tiers) and what was prefetched."""

    cubes: dict[str, int]
    bytes: int
    topics: tuple[Topic, ...]
    hottest: tuple[Warm, ...]
    tiers: dict[str, str]
    used: dict[str, float]
    budget: dict[str, float]
    recalls: int
    uses: dict[str, int]
    answering: bool
    prefetched: int
    prefetch_hits: int
    jobs: dict[str, int]
    model: str
    policy: str


@dataclass(frozen=True)
class Lineage:
    """Where a memory comes from, and what is made of it. origins: what plug-ins know of how it came into the vault, as
    the packs do."""

    cube: MemCube
    sources: tuple[MemCube, ...]
    derived: tuple[MemCube, ...]
    origins: tuple[Frozen, ...]
