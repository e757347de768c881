"""Jobs that nobody waits for: queued once, taken once, begun again after a kill, but not for ever.

Those on leases run on a file and on a server alike; two vaults that are open on it stand for two processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from memos.config import JobsConfig
from memos.errors import Cancelled, NotFound
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import transactions
from tests.plugins.care.test_check import text

LEASE_S = 0.5
Pair = tuple[MemVault, MemVault]


@pytest.fixture(params=["file", "server"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """One vault, open twice, with leases that end soon."""
    on_server = request.param == "server"
    url = request.getfixturevalue("new_url")() if on_server else None
    jobs = JobsConfig(lease_s=LEASE_S, tries=2)
    folders = [tmp_path / ("other" if on_server and n else "one") for n in range(2)]
    with ExitStack() as opened:
        one, other = (opened.enter_context(MemVault(folder, url=url, jobs=jobs)) for folder in folders)
        yield one, other


def lapse() -> None:
    time.sleep(LEASE_S + 0.1)


def queued(vault: MemVault, *names: str) -> list[str]:
    return [vault.jobs.queue("encode", {"sources": [name]}) for name in names]


def test_the_same_work_is_queued_once_until_it_has_ended(vault: MemVault) -> None:
    [job] = queued(vault, "a@1")
    assert queued(vault, "a@1", "a@1") == [job, job]
    assert queued(vault, "a@2") != [job] and vault.jobs.queue("distil", {"sources": ["a@1"]}) != job
    taken = vault.jobs.take()
    assert taken and taken.id == job and queued(vault, "a@1") == [job]
    vault.jobs.end(taken, "done")
    assert queued(vault, "a@1") != [job]


def test_the_oldest_is_taken_first_and_none_twice(vault: MemVault) -> None:
    jobs = queued(vault, *(f"{n}@1" for n in range(40)))
    with ThreadPoolExecutor(8) as pool:
        taken = [job.id for job in pool.map(lambda _: vault.jobs.take(), range(40)) if job]
    assert sorted(taken) == jobs and vault.jobs.take() is None
    assert [job.id for job in vault.jobs.all("running")] == jobs


def test_those_that_were_tried_are_passed_over(vault: MemVault) -> None:
    first, second = queued(vault, "a@1", "b@1")
    taken = vault.jobs.take([first])
    assert taken and taken.id == second and vault.jobs.take([first]) is None


def test_a_job_that_somebody_waits_for_is_not_taken(vault: MemVault) -> None:
    job = vault.jobs.start("encode", {"sources": ["a@1"]})
    vault.jobs.end(job, "interrupted")
    assert vault.jobs.take() is None


def test_a_job_whose_process_dies_is_queued_again_and_at_last_given_up(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        [job] = queued(vault, "a@1")
    for tried in (1, 2, 3):
        with MemVault(tmp_path) as vault:  # left running by the one before
            [waiting] = vault.jobs.all("queued")
            assert waiting.id == job and waiting.note == ("its process died" if tried > 1 else "")
            vault.jobs.take()
    with MemVault(tmp_path) as vault:
        assert vault.jobs.all("queued") == [] and [j.id for j in vault.jobs.all("undone")] == [job]


def test_a_queued_job_is_cancelled_and_ends_with_a_source_that_changes(vault: MemVault) -> None:
    [job] = queued(vault, "a@1")
    vault.jobs.cancel(job)
    assert vault.jobs.take() is None
    with pytest.raises(NotFound, match=f"no open job {job}; see `memos jobs`"):
        vault.jobs.cancel(job)


# leases


def test_what_is_urgent_is_begun_first_and_of_that_the_oldest(pair: Pair) -> None:
    one, other = pair
    slow = one.jobs.queue("distil", {"sources": ["a@1"]}, 0)
    urgent = [one.jobs.queue("encode", {"sources": [name]}, 1) for name in ("b@1", "c@1")]
    order = [other.jobs.take() for _ in range(3)]
    assert [job and job.id for job in order] == [*urgent, slow]


def test_a_job_whose_holder_is_not_heard_of_is_anothers_and_the_first_publishes_nothing(pair: Pair) -> None:
    one, other = pair
    [id] = queued(one, "a@1")
    late = one.jobs.take()
    assert late and other.jobs.take() is None  # as long as the lease is good
    lapse()
    taken = other.jobs.take()
    assert taken and taken.id == id and taken.holder != late.holder
    with pytest.raises(Cancelled, match=f"job {id} .*another process may have it"):
        with one.transaction():
            text(one, "What the late one has made.")
            one.jobs.end(late, "done")
    assert one.cubes() == [] and not one.jobs.note(late, "train 2 of 9")
    for refused in (lambda: one.jobs.end(late, "undone", "failed"), lambda: one.jobs.try_again(late, "failed")):
        with pytest.raises(Cancelled):  # nor does it end the other's
            refused()
    with other.transaction():
        text(other, "What was made.")
        other.jobs.end(taken, "done")
    assert [cube.text for cube in one.cubes()] == ["What was made."]
    with pytest.raises(Cancelled):
        other.jobs.end(taken, "done")  # once


def test_a_holder_that_is_heard_of_keeps_its_job(pair: Pair) -> None:
    one, other = pair
    queued(one, "a@1")
    job = one.jobs.take()
    assert job
    with one.jobs.renewed(job):
        lapse()
        assert other.jobs.take() is None
    assert "memos-lease" not in [thread.name for thread in threading.enumerate()]
    lapse()
    assert other.jobs.take()


def test_a_job_that_takes_every_process_along_has_failed_with_its_reason(pair: Pair) -> None:
    one, other = pair
    [id] = queued(one, "a@1")
    for vault in (one, other):
        assert vault.jobs.take()
        lapse()
    assert one.jobs.take() is None
    assert [(job.id, job.note) for job in one.jobs.all("undone")] == [(id, "its process died")]


def test_what_something_else_was_in_the_way_of_is_tried_again_but_not_for_ever(pair: Pair) -> None:
    one, other = pair
    [id] = queued(one, "a@1")
    for vault, left in ((one, "queued"), (other, "undone")):
        job = vault.jobs.take()
        assert job
        vault.jobs.try_again(job, "VaultError: the server went away")
        assert [(j.id, j.note) for j in one.jobs.all(left)] == [(id, "VaultError: the server went away")]


def test_a_cancelled_job_publishes_nothing_and_ends_even_where_its_process_is_gone(pair: Pair) -> None:
    one, other = pair
    ids = queued(one, "a@1", "b@1")
    running, lost = one.jobs.take(), one.jobs.take()
    assert running and lost
    for id in ids:
        other.jobs.cancel(id)
    with pytest.raises(Cancelled), one.transaction():
        text(one, "What was made meanwhile.")
        one.jobs.end(running, "done")
    one.jobs.end(running, "undone", "cancelled")
    lapse()
    assert one.cubes() == [] and other.jobs.take() is None
    assert [(job.id, job.note) for job in one.jobs.all("undone")] == [(id, "cancelled") for id in ids]


def test_a_promotion_whose_process_died_can_be_begun_again_while_others_have_the_vault_open(pair: Pair) -> None:
    one, _ = pair
    payload = {"sources": ["a@1"]}
    job = one.jobs.start("distil", payload)
    (one.blobs.work(job.id) / "checkpoint").write_bytes(b"half")
    assert one.jobs.resume("distil", payload) is None
    lapse()
    again = one.jobs.resume("distil", payload)
    assert again and again.id == job.id and again.holder != job.holder


def test_leases_go_by_the_clock_of_the_database(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair
    queued(one, "a@1")
    clock = transactions.clock
    monkeypatch.setattr(transactions, "clock", lambda: clock().replace(year=2039))  # of the machine that takes it
    assert one.jobs.take()
    monkeypatch.undo()
    assert other.jobs.take() is None
    lapse()
    assert other.jobs.take()
