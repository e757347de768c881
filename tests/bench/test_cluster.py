"""`memos bench cluster`: what it counts, what it kills, and the contract that every executor of jobs keeps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memos import MemOS
from memos.bench.cluster.bench import bench_cluster
from memos.bench.cluster.jobs import JobFeed, ended, settings_with
from memos.bench.cluster.speed import Speed, simulated_speed
from memos.bench.cluster.workers import working
from memos.config import parse_config
from memos.cube import Form
from memos.infrastructure.vault.mem_vault import MemVault

JOBS = 6
_PATIENCE_S = 120.0
Executor = Callable[[MemOS, Path, str | None, JobFeed], None]


def in_this_process(kernel: MemOS, folder: Path, url: str | None, feed: JobFeed) -> None:
    """The thread beside the requests."""
    kernel.host  # noqa: B018  # nothing is planned before a request has loaded the model
    kernel.parts.serving()
    kernel.services.planning.upkeep.start(0.05)
    wait_for_all(feed)


def in_worker_processes(kernel: MemOS, folder: Path, url: str | None, feed: JobFeed) -> None:
    """`memos work --every`, twice."""
    folders = [folder.with_name(f"worker{n}") if url else folder for n in range(2)]
    with working(settings_with(url, folder.parent), folders):
        wait_for_all(feed)


def wait_for_all(feed: JobFeed) -> None:
    until = time.monotonic() + _PATIENCE_S
    while feed.done() < JOBS and time.monotonic() < until:
        time.sleep(0.05)


@pytest.mark.parametrize("run", [in_this_process, pytest.param(in_worker_processes, marks=pytest.mark.slow)])
def test_every_job_is_done_once_whoever_carries_it_out(run: Executor, tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    with MemOS(parse_config(settings_with(None, tmp_path)), vault=folder) as kernel:
        feed = JobFeed(kernel, random.Random(0), adapters=0.0)
        for _ in range(JOBS):
            feed.queue(feed.said())
        lost = kernel.vault.jobs.take()  # by a process that is not heard of again
        assert lost
        run(kernel, folder, None, feed)
        assert not kernel.vault.jobs.note(lost, "comes back late")
        figures = ended(kernel.vault, feed.ids)
        assert figures == {"jobs": JOBS, "lost": 0, "published_twice": 0, "begun_again": 1, "failed": []}
        assert len(kernel.vault.cubes(form=Form.ACTIVATION)) == JOBS


def test_what_is_lost_or_published_twice_is_counted(tmp_path: Path) -> None:
    with MemOS(parse_config(settings_with(None, tmp_path)), vault=tmp_path / "vault") as kernel:
        feed = JobFeed(kernel, random.Random(0), adapters=0.0)
        ids = [feed.queue(feed.said()) for _ in range(3)]
        kernel.services.planning.upkeep.work()
        [first, *_] = kernel.vault.cubes(form=Form.ACTIVATION)
        kernel.vault.put(first.model_copy(update={"id": "0" * 32}))  # the same, once more
        waiting = feed.queue(feed.said())
        kernel.vault.jobs.cancel(feed.queue(feed.said()))
        figures = ended(kernel.vault, feed.ids)
        assert (figures["lost"], figures["published_twice"]) == (2, 2) and figures["failed"] == ["cancelled"]
        assert waiting in feed.ids and ended(kernel.vault, ids)["lost"] == 0


def test_workers_on_machines_of_their_own_wait_for_the_database_alone() -> None:
    def speedup(workers: int, worker_s: float, database_s: float) -> float:
        cost = Speed(0.0, worker_s, database_s)  # what the clock said is not what is simulated
        return simulated_speed(cost, workers, 4000, 1) / simulated_speed(cost, 1, 4000, 2)

    assert speedup(4, 0.2, 0.0) == pytest.approx(4, rel=0.02)  # nothing is shared
    assert speedup(2, 0.2, 0.1) == pytest.approx(1.8, rel=0.03)  # as mean value analysis has it
    assert speedup(8, 0.1, 0.1) == pytest.approx(2, rel=0.03)  # the database is at work all the time


@pytest.mark.slow
def test_no_kill_of_workers_or_of_their_server_loses_a_job_or_publishes_twice() -> None:
    pytest.importorskip("pgserver")
    figures = bench_cluster(3, 6, 1, 6, 2, 0, lambda *_: None)
    assert figures["jobs"] > 6 and figures["executor"].startswith("3 worker processes (memos work) over PostgreSQL")
    for nothing in ("lost", "published_twice", "orphans", "leaks", "still_open"):
        assert figures[nothing] == 0, (nothing, figures)
    assert figures["check_clean"] and figures["revocation_p99_ms"] <= 1000 and figures["steps"] > 50
    assert figures["server_kills"] == 2


def test_a_worker_goes_on_after_a_round_that_the_database_was_in_the_way_of(tmp_path: Path) -> None:
    from memos.errors import VaultError
    from memos.plugins.commands.forms import rounds

    class AwayOnce(MemOS):
        """Its first round meets a server that is away."""

        rounds_made = 0

        def within(self, *part: object, **named: object) -> AwayOnce:  # type: ignore[override]
            return self

        def tick(self, **_: object) -> list[dict[str, object]]:  # type: ignore[override]
            AwayOnce.rounds_made += 1
            if AwayOnce.rounds_made == 1:
                raise VaultError("the server is away")
            return [{"move": "none", "why": "a round"}]

    with AwayOnce(vault=tmp_path) as kernel:
        assert next(rounds(kernel, 0.01, None))["why"] == "a round"
        AwayOnce.rounds_made = 0
        with pytest.raises(VaultError):
            next(rounds(kernel, None, None))


@pytest.mark.slow
def test_a_vault_that_a_worker_left_is_opened_by_the_next(tmp_path: Path) -> None:
    settings = settings_with(None, tmp_path)
    with working(settings, [tmp_path / "vault"]) as workers:
        workers.wait_until_ready(_PATIENCE_S)
        assert workers.kill(random.Random(0))
        workers.look()  # and it is begun again
        workers.wait_until_ready(_PATIENCE_S)
    with MemVault(tmp_path / "vault") as vault:
        assert vault.jobs.all("running") == []
