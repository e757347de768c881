"""Measures what calls take of a serving process and of its database, and what 1, 2 and 4 processes come to together.

Every process serves one vault on a PostgreSQL server of the benchmark's own. First one process alone: each kind of call
by one client and by several at once, then all kinds together. Then as many processes as are asked for, under all kinds
of calls from as many clients; what was predicted of that from the first measurements is compared.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import ServerDatabase, shared_database
from memos.bench.fleet.costs import CALLS, Call, CallCost, FleetCosts
from memos.bench.fleet.queues import Load, Machines, Outcome, simulate
from memos.bench.serve import Client, served
from memos.config import parse_config
from memos.errors import InputError, MemosError
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

_CORES = os.cpu_count() or 1
_SPIN_S = 1.0  # in which the cores that one gets are counted
_LOOK_S = 0.01  # between two looks at who has the turn to write
_SETTLE_S, _IDLE_S, _IDLE_SHARE = 30.0, 1.0, 0.02  # at most; between two looks; of a core, for who has nothing to do
_SPREAD = 20  # steps of rank
_TOLD = 20  # memories of each client before anything is measured
_SIMULATED = 6000  # calls
_PLACES = "Oslo Rome Lima Cairo Delhi Tokyo Quito Malta Porto Berlin Vienna Dublin".split()
_THINGS = "tent lamp bicycle violin kettle atlas camera ladder rope drum globe chess board clock".split()


@dataclass
class Phase:
    """What a load came to. cpu_s: of the serving processes, of the database and of the clients. turn: the share of the
    time in which somebody had the turn to write."""

    outcome: Outcome = field(default_factory=Outcome)
    server_s: float = 0.0
    database_s: float = 0.0
    client_s: float = 0.0
    turn: float = 0.0
    refused: int = 0

    @property
    def calls(self) -> int:
        return sum(map(len, self.outcome.ms.values()))

    @property
    def mean_s(self) -> float:
        return sum(sum(some) for some in self.outcome.ms.values()) / self.calls / 1e3


@dataclass(frozen=True)
class Processes:
    """Servers of one vault, and who may call them."""

    database: ServerDatabase
    url: str  # of the vault
    urls: list[str]
    pids: list[int]
    keys: list[str]

    def under(self, mix: Mapping[Call, float], clients: int, seconds: float, seed: int, watch: bool) -> Phase:
        """watch: look at who has the turn to write. Raises MemosError where nothing was answered."""
        phase, lock, until = Phase(), threading.Lock(), time.monotonic() + seconds
        cpu = self._server_s(), self.database.cpu_s(), time.process_time()
        began = time.monotonic()
        threads = [threading.Thread(target=self._ask, args=(n, mix, until, seed, phase, lock)) for n in range(clients)]
        for thread in threads:
            thread.start()
        if watch:
            phase.turn = self._share_of_turns(until)
        for thread in threads:
            thread.join()
        phase.outcome.seconds = time.monotonic() - began
        self._settle()
        phase.client_s = time.process_time() - cpu[2]
        phase.server_s, phase.database_s = self._server_s() - cpu[0], self.database.cpu_s() - cpu[1]
        if not phase.calls:
            raise MemosError(f"no call was answered within {seconds:g} s; give more --seconds")
        return phase

    def _settle(self) -> None:
        """Wait until what is done after replies, as making vectors, is done: it belongs to the calls."""
        until, before = time.monotonic() + _SETTLE_S, self._server_s()
        while time.monotonic() < until:
            time.sleep(_IDLE_S)
            now = self._server_s()
            if now - before < _IDLE_SHARE * _IDLE_S * len(self.pids):
                return
            before = now

    def _server_s(self) -> float:
        from memos.bench.cluster.database import cpu_of

        return sum(map(cpu_of, self.pids))

    def _share_of_turns(self, until: float) -> float:
        """Looks of which somebody has the turn to write, over all looks."""
        import psycopg

        taken = looks = 0
        with psycopg.connect(self.url, autocommit=True) as connection:
            while time.monotonic() < until:
                taken += bool(connection.execute(_WRITING).fetchone())
                looks += 1
                time.sleep(_LOOK_S)
        return taken / max(1, looks)

    def _ask(
        self, n: int, mix: Mapping[Call, float], until: float, seed: int, phase: Phase, lock: threading.Lock
    ) -> None:
        rng, names, weights = random.Random(f"{seed} {n}"), list(mix), list(mix.values())
        with closing(Client(self.urls[n % len(self.urls)], self.keys[n])) as client:
            while time.monotonic() < until:
                [name] = rng.choices(names, weights)
                began = time.monotonic()
                try:
                    status, _ = client.call(name, **_given(name, rng))
                except (OSError, http.client.HTTPException, ValueError):
                    client.close()
                    status = 0
                with lock:
                    if status == 200:
                        phase.outcome.ms[name].append((time.monotonic() - began) * 1e3)
                    else:
                        phase.refused += 1


_WRITING = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
              AND classid::bigint = 1835363695 AND objid::bigint & 255 = 1"""  # the lock of the writer, of any vault


def _given(name: Call, rng: random.Random) -> dict[str, Any]:
    thing, place, number = rng.choice(_THINGS), rng.choice(_PLACES), rng.randrange(10**6)
    asked = f"Where is the {thing}?"
    given: dict[Call, dict[str, Any]] = {
        "add": {"messages": f"I keep {thing} number {number} in {place}."},
        "search": {"query": asked, "top_k": 5},
        "chat": {"messages": asked},
    }
    return given[name]


@contextmanager
def _serving(database: ServerDatabase, folder: Path, url: str, keys: list[str], count: int) -> Iterator[Processes]:
    settings = [f"governance.audit.key={folder / 'signing.key'}", f"vault.url={url}"]
    vaults = [folder / f"server{n}" / "vault" for n in range(count)]
    for vault in vaults:
        vault.parent.mkdir(exist_ok=True)
    with ExitStack() as running, ThreadPoolExecutor(count) as starting:
        begin = lambda vault: running.enter_context(served(vault, *settings, threads=1))  # noqa: E731
        found = list(starting.map(begin, vaults))
        yield Processes(database, url, [address for _, address in found], [server.pid for server, _ in found], keys)


def available_cores() -> float:
    """CPU seconds that as many processes as there are cores get in a second, beside whatever else runs here."""
    with multiprocessing.get_context("spawn").Pool(_CORES) as pool:
        return sum(pool.map(_spin, [_SPIN_S] * _CORES)) / _SPIN_S


def _spin(seconds: float) -> float:
    until, began = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < until:
        pass
    return time.process_time() - began


def _cost(alone: Phase, beside: Phase, clients: int, pace: float) -> CallCost:
    """Of a call: from one client's calls, and from those of several at once. pace: CPU seconds that one thread got in a
    second."""
    one, several = alone.server_s / alone.calls, beside.server_s / beside.calls
    database = alone.database_s / alone.calls
    shared = max(0.0, one - several) * clients / (clients - 1)
    later = min(
        one - shared, max(0.0, one + database - alone.mean_s * pace)
    )  # what does not fit into the time of a call
    [ms] = alone.outcome.ms.values()
    ordered = sorted(ms)
    steps = [ordered[int((n + 0.5) / _SPREAD * len(ordered))] for n in range(_SPREAD)]
    mean = sum(steps) / len(steps)
    return CallCost(
        own_s=max(one, several) - shared - later,
        shared_s=shared,
        later_s=later,
        database_s=beside.database_s / beside.calls,
        waits_s=max(0.0, alone.mean_s - (one - later + database) / pace),
        turn=min(1.0, alone.turn * alone.outcome.seconds / (alone.calls * alone.mean_s)),
        spread=tuple(round(step / mean, 3) for step in steps),
    )


def _as_mixed(costs: Mapping[Call, CallCost], mixed: Phase) -> dict[Call, CallCost]:
    """Costs as they are among calls of all kinds, where each add is to be found by the next search: all alike are so
    many times what they are apart."""
    calls = [(costs[name], len(some)) for name, some in mixed.outcome.ms.items()]
    server = mixed.server_s / sum((one.own_s + one.shared_s + one.later_s) * n for one, n in calls)
    database = mixed.database_s / sum(one.database_s * n for one, n in calls)
    more = {"own_s": server, "shared_s": server, "later_s": server, "database_s": database}
    return {
        name: cost.model_copy(update={part: getattr(cost, part) * times for part, times in more.items()})
        for name, cost in costs.items()
    }


def measure(
    mix: Mapping[Call, float], processes: Sequence[int], clients: int, seconds: float, seed: int, show: Show
) -> dict[str, Any]:
    """costs: `FleetCosts`. rows: of each number of processes what was predicted and measured; an error of .1 is one of
    10 %, of a prediction that is too high. Raises InputError, MemosError."""
    with tempfile.TemporaryDirectory(prefix="memos-fleet-") as root, shared_database(Path(root) / "server") as database:
        if not isinstance(database, ServerDatabase):
            raise InputError("several servers share a PostgreSQL server; `pip install pgserver psycopg[binary,pool]`")
        folder, url = Path(root), database.url()
        keys = _told(folder, url, max(2, clients))
        costs, loaded = dict[Call, CallCost](), list[Phase]()
        with _serving(database, folder, url, keys, 1) as alone:
            alone.under(
                {"chat": 1, "search": 1, "add": 1}, 2, min(5.0, seconds), seed, watch=False
            )  # loads what is needed
            for n, name in enumerate(reversed(CALLS)):  # adds last: what they leave to do is nobody else's
                show("measure calls", n, len(CALLS))
                cores = available_cores()
                first = alone.under({name: 1}, 1, seconds, seed + 1, watch=True)
                cores = (cores + available_cores()) / 2
                loaded.append(alone.under({name: 1}, max(2, clients), seconds, seed + 2, watch=False))
                costs[name] = _cost(first, loaded[-1], max(2, clients), min(1.0, cores))
            costs = _as_mixed(costs, alone.under(mix, clients, seconds, seed + 3, watch=False))
            show("measure calls", len(CALLS), len(CALLS))
        client_s = sum(phase.client_s for phase in loaded) / sum(phase.calls for phase in loaded)
        fleet = FleetCosts(model="memos-small", calls=costs, client_s=client_s)
        rows = []
        for n, count in enumerate(processes):
            show("run processes", n, len(processes))
            with _serving(database, folder, url, keys, count) as running:
                running.under(mix, max(clients, count), min(5.0, seconds), seed + 3, watch=False)
                cores = available_cores()
                measured = running.under(mix, clients, seconds, seed + 4, watch=False)
                cores = (cores + available_cores()) / 2
            load, machines = Load(mix, clients=clients), Machines(count, cores)
            rows.append(_compared(machines, simulate(fleet, load, machines, _SIMULATED, seed), measured))
        show("run processes", len(processes), len(processes))
    errors = [abs(row["error"]) for row in rows]
    return {
        "costs": fleet.model_dump(),
        "rows": rows,
        "mean_error": sum(errors) / len(errors),
        "max_error": max(errors),
    }


def _told(folder: Path, url: str, clients: int) -> list[str]:
    """A vault with somebody behind each client, who has some memories; their keys."""
    rng = random.Random(0)
    settings = {"vault": {"url": url}, "governance": {"audit": {"key": str(folder / "signing.key")}}}
    with MemOS(parse_config(settings), vault=folder / "here") as kernel:
        for n in range(clients):
            for _ in range(_TOLD):
                kernel.within(f"client{n}").add(_given("add", rng)["messages"])
        return [kernel.services.governing.add_key(f"client{n}")[0] for n in range(clients)]


def _compared(machines: Machines, predicted: Outcome, measured: Phase) -> dict[str, Any]:
    found, foretold = measured.outcome.calls_a_second, predicted.calls_a_second
    row: dict[str, Any] = {
        "processes": machines.processes,
        "cores": machines.cores,
        "calls": measured.calls,
        "refused": measured.refused,
        "calls_a_second": found,
        "predicted_calls_a_second": foretold,
        "error": foretold / found - 1,
    }
    for share, name in ((0.5, "p50_ms"), (0.95, "p95_ms")):
        row[name], row[f"predicted_{name}"] = measured.outcome.percentile(share), predicted.percentile(share)
    row["cpu_s_a_call"] = {
        "server": measured.server_s / measured.calls,
        "database": measured.database_s / measured.calls,
        "client": measured.client_s / measured.calls,
    }
    return row
