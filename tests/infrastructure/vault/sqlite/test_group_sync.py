"""Threads that wait for the disk at the same time share a sync, and its failure."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from memos.bench.vault import drawn
from memos.errors import VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.sqlite.database import GroupSync
from memos.plugins.care.check import problems_of


class SlowDisk:
    """Counts syncs; each waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.failing = False
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, file: int) -> None:
        self.syncs += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=30)
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(file)


def in_threads(works: list) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(30)
    return not any(thread.is_alive() for thread in threads)


@pytest.fixture
def group(tmp_path: Path) -> GroupSync:
    (tmp_path / "log").write_bytes(b"")
    return GroupSync(tmp_path / "log")


@pytest.mark.crash
def test_who_comes_while_a_sync_runs_shares_the_next(group: GroupSync, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    first = in_threads([lambda n=group.wrote(): group.wait(n)])
    assert disk.begun.acquire(timeout=30)
    others = in_threads([lambda n=group.wrote(): group.wait(n) for _ in range(20)])
    disk.may_end.release()
    assert ended(first)
    assert all(thread.is_alive() for thread in others)  # the sync had begun before they wrote
    disk.may_end.release()
    assert ended(others) and disk.syncs == 2


@pytest.mark.crash
def test_all_whom_a_failed_sync_covered_are_told_and_nothing_is_taken_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [before, *cubes, late] = drawn_cubes(7)
    told: list[str] = []

    def put(cube) -> None:
        try:
            vault.put(cube)
            told.append("kept")
        except VaultError as error:
            told.append(str(error))

    with MemVault(tmp_path / "vault") as vault:
        vault.put(before)
        disk = SlowDisk(monkeypatch)
        disk.failing = True
        threads = in_threads([lambda cube=cube: put(cube) for cube in cubes])
        for _ in cubes:
            disk.may_end.release()
        assert ended(threads)
        put(late)
        assert len(told) == 6 and all("did not confirm it (Input/output error)" in message for message in told)
        assert vault.at([late.id]) == [] and vault.get(before.id) == before  # reading goes on
    monkeypatch.undo()
    with MemVault(tmp_path / "vault") as vault:
        vault.put(late)
        assert vault.get(before.id) == before and problems_of(vault) == []


@pytest.mark.crash
def test_writers_of_a_vault_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemVault(tmp_path / "vault") as vault:
        disk = SlowDisk(monkeypatch)
        [first, *cubes] = drawn_cubes(9)
        threads = in_threads([lambda: vault.put(first)])
        assert disk.begun.acquire(timeout=30)
        others = in_threads([lambda cube=cube: vault.put(cube) for cube in cubes])
        while len(vault.at(cube.id for cube in cubes)) < len(cubes):  # read before they are on disk, and not blocked
            assert any(thread.is_alive() for thread in others)
        assert all(thread.is_alive() for thread in others)  # none is told yet
        for _ in range(2):
            disk.may_end.release()
        assert ended(threads + others) and disk.syncs == 2
        monkeypatch.undo()


def drawn_cubes(count: int) -> list:
    import random

    return drawn(random.Random(0), count)
