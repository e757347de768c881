"""Simulates calls that wait for a process, for a core and for the turn to write; knows no machine and no prices.

    caller -> process (one thread runs at a time) -> core -> database -> turn to write (one call of a vault) -> reply

Calls take turns of a few milliseconds at a process, as threads do, share the cores, and wait in line for the turn to
write. What is done after the reply, as making vectors, takes the process's time as well.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from memos.bench.fleet.costs import Call, CallCost, FleetCosts
from memos.errors import InputError, how_to_install

if TYPE_CHECKING:
    from simpy import Environment, Resource

QUANTUM_S = 0.01
_WARM = 0.1  # of the calls, which are not counted
Steps = Generator[Any, Any, None]


@dataclass(frozen=True)
class Load:
    """Who calls what. clients: so many, each of whom calls again once it is answered; None: rate calls a second, of as
    many people as one likes."""

    mix: Mapping[Call, float]
    clients: int | None = None
    rate: float = 0.0


@dataclass(frozen=True)
class Machines:
    """processes: that serve one vault. cores: of their machine, as far as others leave them.
    database_cores: of a machine of the database's own; None: it shares theirs."""

    processes: int
    cores: float
    database_cores: float | None = None


@dataclass
class Outcome:
    """What came of a load. ms: of each call, from asking to the reply."""

    ms: dict[Call, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: float = 0.0

    @property
    def calls_a_second(self) -> float:
        return sum(map(len, self.ms.values())) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float, call: Call | None = None) -> float:
        """Of the ms of one kind of call, or of all; 0 where there was none."""
        ordered = sorted(ms for name, some in self.ms.items() if call in (None, name) for ms in some)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Cores:
    """Cores that all who work share alike; a part of one where others use the machine too."""

    def __init__(self, env: Environment, number: float) -> None:
        self._env, self._number, self._working = env, number, 0

    def work(self, seconds: float, within: Resource | None = None) -> Steps:
        """CPU seconds, in small turns, each of which needs a place in `within` as well."""
        while seconds > 1e-9:
            turn = min(seconds, QUANTUM_S)
            seconds -= turn
            place = within.request() if within is not None else None
            if place is not None:
                yield place
            self._working += 1
            yield self._env.timeout(turn / self.pace(self._working))
            self._working -= 1
            if within is not None and place is not None:
                within.release(place)

    def pace(self, working: int) -> float:
        """Seconds of CPU that each gets in a second, of so many who work."""
        return min(1.0, self._number / working)


class Fleet:
    """Processes that serve one vault."""

    def __init__(self, env: Environment, costs: FleetCosts, machines: Machines, rng: random.Random) -> None:
        from simpy import Resource

        self.env, self._costs, self._rng = env, costs, rng
        self._cores = Cores(env, machines.cores)
        self._database = Cores(env, machines.database_cores) if machines.database_cores else self._cores
        self._threads = [Resource(env) for _ in range(machines.processes)]
        self._turn, self._client = Resource(env), Resource(env)
        self._together = [defaultdict[Call, int](int) for _ in range(machines.processes)]

    def call(self, name: Call, process: int) -> Steps:
        """One call of a process, from asking to the reply."""
        cost, together = self._costs.calls[name], self._together[process]
        together[name] += 1
        times = self._rng.choice(cost.spread)
        cpu = (cost.own_s + cost.shared_s / together[name]) * times
        yield from self._cores.work(self._costs.client_s, self._client)
        yield from self._phase(cost, 1 - cost.turn, cpu, times, process)
        if cost.turn:
            with self._turn.request() as turn:
                yield turn
                yield from self._phase(cost, cost.turn, cpu, times, process)
        together[name] -= 1
        if cost.later_s:
            self.env.process(self._cores.work(cost.later_s, self._threads[process]))

    def _phase(self, cost: CallCost, share: float, cpu: float, times: float, process: int) -> Steps:
        yield from self._cores.work(cpu * share, self._threads[process])
        yield from self._database.work(cost.database_s * share * times)
        yield self.env.timeout(cost.waits_s * share * times)


def simulate(costs: FleetCosts, load: Load, machines: Machines, calls: int, seed: int) -> Outcome:
    """So many calls, of which the first tenth is not counted. Raises InputError."""
    try:
        from simpy import Environment
    except ImportError as error:
        raise InputError(f"memos simulate fleet needs {error.name}; {how_to_install('fleet')}") from None
    missing = sorted(set(load.mix) - set(costs.calls))
    if missing:
        raise InputError(f"there are no costs of {', '.join(missing)}; measure them with --measure, or give --costs")
    env, rng, outcome = Environment(), random.Random(seed), Outcome()
    fleet, numbers = Fleet(env, costs, machines, rng), count()
    names, weights = list(load.mix), list(load.mix.values())
    done = env.event()
    began = [0.0]

    def one(process: int) -> Steps:
        [name] = rng.choices(names, weights)
        asked = env.now
        yield from fleet.call(name, process)
        n = next(numbers)
        if n == int(calls * _WARM):
            began[0] = env.now
        elif n > calls * _WARM and not done.triggered:
            outcome.ms[name].append((env.now - asked) * 1e3)
            if n >= calls:
                done.succeed()

    def client(process: int) -> Steps:
        while True:
            yield from one(process)

    def arrivals() -> Steps:
        for n in count():
            yield env.timeout(rng.expovariate(load.rate))
            env.process(one(n % machines.processes))

    if load.clients is None:
        env.process(arrivals())
    else:
        for n in range(load.clients):
            env.process(client(n % machines.processes))
    env.run(done)
    outcome.seconds = env.now - began[0]
    return outcome
