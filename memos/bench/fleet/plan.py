"""Plans what a number of users needs: vaults, processes, bytes and money; knows no measuring.

Every process of a vault holds the catalogue of all its memories. So users are divided among vaults: as many to one as a
machine's memory takes, and as its one turn to write and its cores serve at the peak. What a vault then needs is
simulated, and multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memos.bench.fleet.costs import BYTES_IN_DATABASE, BYTES_IN_PROCESS, PROCESS_BYTES, Call, FleetCosts
from memos.bench.fleet.queues import Load, Machines, simulate
from memos.errors import InputError
from memos.plugins.progress import Show

_DAY_S, _MONTH_H = 86_400, 730
_SIMULATED, _ALONE = 3000, 500  # calls
_MOST_PROCESSES = 256  # of one vault
_FULL = 0.7  # of the turn to write and of the cores, at the peak: beyond, waiting grows fast


class Demand(BaseModel):
    """What users do, and what they are promised."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exchanges_a_day: float = Field(10.0, gt=0, description="of each user: a message and its answer")
    calls: dict[Call, float] = Field({"add": 1, "search": 1, "chat": 1}, description="of an exchange")
    memories: float = Field(2.0, ge=0, description="that an exchange leaves, as both of its turns")
    days: float = Field(365.0, gt=0, description="for which memories are kept")
    peak: float = Field(3.0, ge=1, description="calls in the busiest time over their mean")
    kv_bytes: float = Field(0.0, ge=0, description="of KV files and adapters of a user, in the bucket")
    p95_ms: float = Field(2000.0, gt=0, description="within which 95 of 100 chats are answered")


class Offer(BaseModel):
    """A machine that one can have, and prices in the currency that one likes: assumptions, to be replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: int = Field(16, ge=1)
    gib: float = Field(64.0, gt=1)
    core_hour: float = Field(0.04, ge=0)
    gib_hour: float = Field(0.005, ge=0)
    disk_gib_month: float = Field(0.1, ge=0)
    bucket_gib_month: float = Field(0.023, ge=0)
    spare: int = Field(1, ge=0, description="servers of a vault beyond those that the load needs")


def plan(users: int, demand: Demand, offer: Offer, costs: FleetCosts, seed: int) -> dict[str, Any]:
    """Raises InputError for a demand that no number of processes serves."""
    mine = demand.exchanges_a_day * demand.days * demand.memories  # memories of a user
    held = offer.gib * (1 << 30) - PROCESS_BYTES
    by_memory = max(1, int(held / (mine * BYTES_IN_PROCESS))) if mine else users
    rate = demand.exchanges_a_day * demand.peak / _DAY_S  # exchanges a second of a user, at the peak
    by_turn = max(1, int(_FULL / (rate * _turn_s(costs, demand)))) if _turn_s(costs, demand) else users
    of_one = min(users, by_memory, by_turn)
    vaults = math.ceil(users / of_one)
    of_one = math.ceil(users / vaults)
    serving, outcome = _serving(of_one * rate, demand, offer, costs, seed)
    servers = serving + offer.spare
    catalogue = of_one * mine * BYTES_IN_PROCESS
    process_gib = (PROCESS_BYTES + catalogue) / (1 << 30)
    machines = math.ceil(vaults * max((servers + 1) * process_gib / offer.gib, (servers + 1) / offer.cores))
    database_cores = math.ceil(users * rate * _database_s(costs, demand) / _FULL)
    rows_gib = users * mine * BYTES_IN_DATABASE / (1 << 30)
    month = _MONTH_H * machines * (offer.cores * offer.core_hour + offer.gib * offer.gib_hour)
    month += _MONTH_H * database_cores * (offer.core_hour + 4 * offer.gib_hour) + rows_gib * offer.disk_gib_month
    month += users * demand.kv_bytes / (1 << 30) * offer.bucket_gib_month
    return {
        "users": users,
        "vaults": vaults,
        "users_of_a_vault": of_one,
        "limited_by": "memory"
        if of_one < users and by_memory <= by_turn
        else "the turn to write"
        if vaults > 1
        else "",
        "calls_a_second": users * rate * sum(demand.calls.values()),
        "servers": vaults * servers,
        "workers": vaults,
        "gib_of_a_process": process_gib,
        "machines": machines,
        "database_cores": database_cores,
        "database_gib": rows_gib,
        "chat_p50_ms": outcome.percentile(0.5, "chat"),
        "chat_p95_ms": outcome.percentile(0.95, "chat"),
        "cost_a_month": month,
        "cost_of_a_user": month / users,
    }


def _turn_s(costs: FleetCosts, demand: Demand) -> float:
    """For which an exchange has the turn to write."""
    of_calls = {
        name: cost.turn * (cost.own_s + cost.shared_s + cost.database_s + cost.waits_s)
        for name, cost in costs.calls.items()
    }
    return sum(of_calls.get(name, 0.0) * n for name, n in demand.calls.items())


def _database_s(costs: FleetCosts, demand: Demand) -> float:
    """CPU of the database for an exchange."""
    return sum(costs.calls[name].database_s * n for name, n in demand.calls.items() if name in costs.calls)


def _serving(exchanges_a_second: float, demand: Demand, offer: Offer, costs: FleetCosts, seed: int) -> Any:
    """The fewest processes of a vault that keep the promise, and what came of them."""
    load = Load(demand.calls, rate=exchanges_a_second * sum(demand.calls.values()))
    judged: Call | None = "chat" if "chat" in demand.calls else None
    alone = simulate(costs, Load(demand.calls, clients=1), Machines(1, 1), _ALONE, seed).percentile(0.95, judged)
    if alone > demand.p95_ms:
        raise InputError(
            f"a call that waits for nobody takes up to {alone:.0f} ms, and --p95-ms is {demand.p95_ms:g}; give "
            "more, or the --costs of a faster one"
        )
    busy = sum(
        (cost.own_s + cost.shared_s + cost.later_s) * demand.calls.get(name, 0.0) for name, cost in costs.calls.items()
    )
    processes = max(1, math.ceil(exchanges_a_second * busy / 0.9))
    while processes <= _MOST_PROCESSES:
        machines = Machines(processes, min(processes, offer.cores), database_cores=offer.cores)
        outcome = simulate(costs, load, machines, _SIMULATED, seed)
        if outcome.percentile(0.95, judged) <= demand.p95_ms:
            return processes, outcome
        processes = math.ceil(processes * 1.25)
    raise InputError(
        f"no number of processes up to {_MOST_PROCESSES} answers {exchanges_a_second:.1f} exchanges a second of one "
        f"vault within {demand.p95_ms:g} ms; give more --p95-ms, or a faster machine's --costs"
    )


def plans(
    users: Sequence[int], demand: Demand, offer: Offer, costs: FleetCosts, seed: int, show: Show
) -> list[dict[str, Any]]:
    """A plan for each number of users."""
    made = []
    for n, number in enumerate(users):
        show("plan", n, len(users))
        made.append(plan(number, demand, offer, costs, seed))
    show("plan", len(users), len(users))
    return made
