"""How many jobs a second several workers do, against one, on the same jobs."""

from __future__ import annotations

import random
import time
from pathlib import Path

from memos.bench.cluster.database import SharedDatabase
from memos.bench.cluster.jobs import JobFeed, settings_with
from memos.bench.cluster.workers import working
from memos.config import parse_config
from memos.errors import MemosError
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS

_READY_S, _DONE_S = 300.0, 600.0  # on a busy machine a start takes minutes
_LOOK_S = 0.1


def jobs_a_second(database: SharedDatabase, folder: Path, workers: int, jobs: int, seed: int, show: Show) -> float:
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
            began = time.perf_counter()
            while (done := feed.done()) < jobs:
                show(f"work with {workers}", done, jobs)
                if time.perf_counter() - began > _DONE_S:
                    raise MemosError(f"{workers} workers did {done} of {jobs} jobs: {running.log()[-500:]}")
                time.sleep(_LOOK_S)
            show(f"work with {workers}", jobs, jobs)
            return jobs / (time.perf_counter() - began)
