"""Kills workers and their database at random times while they carry out jobs, and looks at what is left.

What is killed is begun again. Some workers are stopped instead, until their jobs are others', and then go on: what
those come back with must not be published.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import SharedDatabase
from memos.bench.cluster.jobs import LEASE_S, TRIES, JobFeed, ended, settings_with
from memos.bench.cluster.workers import Workers, working
from memos.config import JobsConfig, parse_config
from memos.infrastructure.vault.mem_vault import MemVault
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

_PAUSE_S = (0.1, 0.9)  # between two kills
_JOBS_BETWEEN = 4  # that are done between two kills, at most; while none is, nobody works whom a kill could hit
_IDLE_S = 45.0  # for which that is waited for
_STALLED_S = 1.5 * LEASE_S
_WAITING = 6  # jobs that wait at least, as long as there is somebody to kill
_PATIENCE_S = 300.0  # without a job being done, before what is left is given up
_ADAPTERS = 0.06  # of the jobs; the others make KV, which takes a tenth of the time
Event = Callable[[], bool]  # False where nobody is there to be hit


def run_kills(
    database: SharedDatabase, folder: Path, workers: int, kills: int, database_kills: int, seed: int, show: Show
) -> dict[str, Any]:
    """orphans: payloads without a cube, and files of unfinished work, after collection. check_clean: what `memos vault
    check` finds."""
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # that the server is away is what is meant
    rng, url = random.Random(seed), database.url()
    shared = folder / "vault"
    folders = [folder / f"worker{n}" if url else shared for n in range(workers)]
    here = folder / "here" if url else shared
    settings = settings_with(url, folder)
    began = time.monotonic()
    with MemOS(parse_config(settings), vault=here) as kernel, working(settings, folders) as running:
        feed = JobFeed(kernel, rng, _ADAPTERS)
        stalls = max(2, kills // 5)
        events: list[Event] = [partial(running.kill, rng)] * kills
        events += [partial(running.stall, rng, _STALLED_S)] * stalls
        events += [partial(_died, database)] * database_kills
        rng.shuffle(events)
        _until_done(feed, running, events, rng, show)
        left = sum(feed.open().values())
        running.end()
    seconds = time.monotonic() - began
    figures = _judged(here, url, feed.ids, folders)
    return figures | {
        "kills": kills,
        "database_kills": database_kills,
        "stalls": stalls,
        "still_open": left,
        "seconds_of_kills": seconds,
    }


def _died(database: SharedDatabase) -> bool:
    database.die()
    return True


def _until_done(feed: JobFeed, workers: Workers, events: list[Event], rng: random.Random, show: Show) -> None:
    """Queue jobs as long as there is something to kill, and let what waits then be done."""
    total, next_at, due, progress = len(events), time.monotonic(), 0, (0, time.monotonic())
    while True:
        waiting = feed.open()
        done = len(feed.ids) - sum(waiting.values())
        if not events and not sum(waiting.values()):
            return
        if done != progress[0]:
            progress = done, time.monotonic()
        if time.monotonic() - progress[1] > _PATIENCE_S:
            return
        if events and waiting["queued"] < _WAITING:
            feed.queue(feed.said())
        workers.look()
        is_due = (done >= due and waiting["running"]) or time.monotonic() > next_at + _IDLE_S
        if events and time.monotonic() >= next_at and is_due and events[-1]():
            events.pop()
            due = done + rng.randrange(_JOBS_BETWEEN)
            show("kill", total - len(events), total)
            next_at = time.monotonic() + rng.uniform(*_PAUSE_S)
        if not events:
            show("do what is left", done, len(feed.ids))
        time.sleep(0.02)


def _judged(here: Path, url: str | None, ids: list[str], folders: list[Path]) -> dict[str, Any]:
    """What is left once every process has ended, in the vault and in the folder of each."""
    jobs, files = JobsConfig(lease_s=LEASE_S, tries=TRIES), 0
    for folder in dict.fromkeys((*folders, here)):
        MemVault(folder, url=url, jobs=jobs).close()  # alone: what others have left is collected
        files += sum(path.is_file() for part in ("tmp", "work") for path in (folder / part).rglob("*"))
    from memos.plugins.care.check import problems_of  # with all that it reads vaults by

    with MemVault(here, url=url, jobs=jobs) as vault:
        unused = set(vault.blobs.all()) - {cube.blob.sha256 for cube in vault.cubes() if cube.blob}
        problems = problems_of(vault)
        return ended(vault, ids) | {
            "orphans": len(unused) + files,
            "check_clean": not problems,
            "problems": problems[:10],
        }
