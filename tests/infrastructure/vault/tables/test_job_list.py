"""Jobs that nobody waits for: queued once, taken once, begun again after a kill, but not for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memos.errors import NotFound
from memos.infrastructure.vault.mem_vault import MemVault


def queued(vault: MemVault, *names: str) -> list[str]:
    return [vault.jobs.queue("encode", {"sources": [name]}) for name in names]


def test_the_same_work_is_queued_once_until_it_has_ended(vault: MemVault) -> None:
    [job] = queued(vault, "a@1")
    assert queued(vault, "a@1", "a@1") == [job, job]
    assert queued(vault, "a@2") != [job] and vault.jobs.queue("distil", {"sources": ["a@1"]}) != job
    taken = vault.jobs.take()
    assert taken and taken.id == job and queued(vault, "a@1") == [job]
    vault.jobs.end(job, "done")
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
