"""Workers on Ray: the contract of every executor of jobs, an actor that dies, and what is refused."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.bench.cluster.jobs import JobFeed, settings_with
from memos.config import parse_config
from memos.errors import InputError
from memos.plugins.ray_executor.pool import Pool, cluster, pooled
from tests.bench import test_cluster
from tests.bench.test_cluster import JOBS

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
_PATIENCE_S = 240.0


@pytest.fixture(scope="module", autouse=True)
def on_ray() -> Iterator[None]:
    with cluster():
        yield


def until_done(pool: Pool, feed: JobFeed, disturb: Any = lambda: None) -> list[dict[str, Any]]:
    moves, until = list[dict[str, Any]](), time.monotonic() + _PATIENCE_S
    while feed.done() < JOBS and time.monotonic() < until:
        moves += pool.step()
        disturb()
    return moves


def on_actors(kernel: MemOS, folder: Path, url: str | None, feed: JobFeed) -> None:
    with pooled(kernel.config, kernel.vault, 1, 2, 0, "worker") as pool:
        until_done(pool, feed)


def test_every_job_is_done_once_by_actors(tmp_path: Path) -> None:
    test_cluster.test_every_job_is_done_once_whoever_carries_it_out(on_actors, tmp_path)


def test_an_actor_that_dies_loses_no_job_and_workers_come_and_go_with_the_work(tmp_path: Path) -> None:
    with MemOS(parse_config(settings_with(None, tmp_path)), vault=tmp_path / "vault") as kernel:
        feed = JobFeed(kernel, random.Random(0), adapters=0.0)
        for _ in range(JOBS):
            feed.queue(feed.said())
        with pooled(kernel.config, kernel.vault, 1, 2, 0, "worker") as pool:
            sizes, killed = set[int](), list[Any]()

            def kill_one() -> None:
                sizes.add(pool.size)
                if feed.done() >= 1 and not killed:
                    killed.append(next(iter(pool._rounds.values()), None) or pool._idle[0])
                    ray.kill(killed[0], no_restart=False)

            until_done(pool, feed, kill_one)
            assert killed and max(sizes) == 2
            for _ in range(40):
                list(pool.step())
            assert pool.size == 1
        figures = test_cluster.ended(kernel.vault, feed.ids)
        assert (figures["jobs"], figures["lost"], figures["published_twice"]) == (JOBS, 0, 0)


def test_bounds_that_are_none_are_refused(tmp_path: Path) -> None:
    with closing(MemOS(vault=tmp_path / "vault")) as kernel:
        with pytest.raises(InputError, match="--least 3 is more than --most 2"):
            pooled(kernel.config, kernel.vault, 3, 2, 0, None).__enter__()
