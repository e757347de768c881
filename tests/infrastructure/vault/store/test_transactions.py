"""Whose turn it is to write, among threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from memos.errors import VaultError
from memos.infrastructure.vault.store.transactions import lock_of

ROOT = Path(__file__).parents[4]
HOLD = """
import sys, time
from pathlib import Path
from memos.infrastructure.vault.store.transactions import lock_of
with lock_of(Path(sys.argv[1])).held(10):
    print("held", flush=True)
    time.sleep(60)
"""
# takes turns for some seconds; each takes a while, and it asks again at once
TAKE_TURNS = """
import sys, time
from pathlib import Path
from memos.infrastructure.vault.store.transactions import lock_of
lock = lock_of(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
until, turns, longest = time.monotonic() + 2, 0, 0.0
while (asked := time.monotonic()) < until:
    with lock.held(30):
        longest = max(longest, time.monotonic() - asked)
        turns += 1
        time.sleep(0.002)
print(turns, longest)
"""


def started(script: str, file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None and process.stdout.readline().strip() in ("held", "ready")
    return process


@pytest.mark.crash
def test_processes_take_turns(tmp_path: Path) -> None:
    processes = [started(TAKE_TURNS, tmp_path / "db") for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=60)[0].split() for process in processes]
    turns, longest = [int(n) for n, _ in told], [float(s) for _, s in told]
    assert min(turns) > 0.5 * max(turns), turns
    assert max(longest) < 1, longest  # four turns of 2 ms, on a machine that may be busy


@pytest.mark.crash
def test_threads_are_let_in_as_they_came(tmp_path: Path) -> None:
    lock, order = lock_of(tmp_path / "db"), list[int]()

    def take(n: int) -> None:
        with lock.held(30):
            order.append(n)

    with lock.held(0):
        threads = []
        for n in range(8):
            threads.append(threading.Thread(target=take, args=(n,)))
            threads[-1].start()
            while len(lock._queue) <= n + 1:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == list(range(8))


@pytest.mark.crash
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder, lock = started(HOLD, tmp_path / "db"), lock_of(tmp_path / "db")
    came = threading.Event()

    def wait() -> None:
        with lock.held(30):
            came.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not came.wait(0.1)
    holder.kill()
    assert came.wait(30)
    waiting.join()
    holder.communicate()


@pytest.mark.crash
def test_a_lock_that_is_held_for_too_long_is_named_and_does_not_come_later(tmp_path: Path) -> None:
    holder, lock = started(HOLD, tmp_path / "db"), lock_of(tmp_path / "db")
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(VaultError, match="locked: another process .* try again"), lock.held(0.1):
        pass
    holder.kill()
    holder.communicate()
    for _ in range(20):  # the turn that was given up is passed on
        with lock.held(10), lock.held(0):
            assert lock.mine
    assert not lock.mine


@pytest.mark.crash
def test_a_thread_that_waits_in_vain_is_not_waited_for(tmp_path: Path) -> None:
    lock, errors = lock_of(tmp_path / "db"), list[str]()

    def wait() -> None:
        try:
            with lock.held(0.05):
                pass
        except VaultError as error:
            errors.append(str(error))

    with lock.held(0):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert "another thread" in errors[0]
    with lock.held(0):
        pass
