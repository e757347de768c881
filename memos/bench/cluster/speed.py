"""How many jobs a second several workers do, against one, on the same jobs; and on machines of their own, simulated."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import ServerDatabase, SharedDatabase, cpu_of
from memos.bench.cluster.jobs import JobFeed, settings_with
from memos.bench.cluster.workers import Workers, working
from memos.config import parse_config
from memos.errors import MemosError
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

_READY_S, _DONE_S = 300.0, 600.0  # on a busy machine a start takes minutes
_LOOK_S = 0.1
_TURNS = 8  # in which a job goes from its worker to the database and back


@dataclass(frozen=True)
class Speed:
    """jobs_a_second: as the clock has it. worker_s, database_s: CPU seconds of a job, of its worker and of a server of
    the database; None where it has none."""

    jobs_a_second: float
    worker_s: float
    database_s: float | None


def measure_speed(database: SharedDatabase, folder: Path, workers: int, jobs: int, seed: int, show: Show) -> Speed:
    """Of so many promotions to KV, from when all are queued and each worker has loaded its model. Raises MemosError
    where they are not done in time."""
    url = database.url()
    settings, rng = settings_with(url, folder), random.Random(seed)
    folders = [folder / (f"worker{n}" if url else "vault") for n in range(workers)]
    with MemOS(parse_config(settings), vault=folder / ("here" if url else "vault")) as kernel:
        feed = JobFeed(kernel, rng, adapters=0.0)
        sources = [feed.said() for _ in range(jobs)]
        with working(settings, folders) as running:
            running.wait_until_ready(_READY_S)
            with kernel.vault.transaction():  # they begin at once
                for each in sources:
                    feed.queue(each)
            began, spent = time.perf_counter(), list(_cpu(running, database))
            while (done := feed.done()) < jobs:
                show(f"work with {workers}", done, jobs)
                if time.perf_counter() - began > _DONE_S:
                    raise MemosError(f"{workers} workers did {done} of {jobs} jobs: {running.log()[-500:]}")
                time.sleep(_LOOK_S)
            show(f"work with {workers}", jobs, jobs)
            seconds = time.perf_counter() - began
            worker_s, database_s = (now - then for now, then in zip(_cpu(running, database), spent, strict=True))
    served = isinstance(database, ServerDatabase)
    return Speed(jobs / seconds, worker_s / jobs, database_s / jobs if served else None)


def _cpu(running: Workers, database: SharedDatabase) -> Iterator[float]:
    """CPU seconds so far: of the workers, and of the database's server."""
    yield sum(cpu_of(worker.process.pid) for worker in running.running if worker.process.pid)
    yield database.cpu_s() if isinstance(database, ServerDatabase) else 0.0


def simulated_speed(cost: Speed, workers: int, jobs: int, seed: int) -> float:
    """Jobs a second of workers with a core each, over a database with a core of its own, by what a job costs on
    average: each part of it takes a time of an exponential distribution."""
    from simpy import Environment, Resource

    env, left, rng = Environment(), [jobs], random.Random(seed)
    database, database_s = Resource(env), cost.database_s or 0.0

    def part(mean: float) -> Any:
        return env.timeout(rng.expovariate(_TURNS / mean) if mean else 0.0)

    def work() -> Generator[Any, Any, None]:
        while left[0]:
            left[0] -= 1
            for _ in range(_TURNS):
                yield part(cost.worker_s)
                with database.request() as turn:
                    yield turn
                    yield part(database_s)

    for _ in range(workers):
        env.process(work())
    env.run()
    return jobs / float(env.now)
