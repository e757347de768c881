"""The threads that tensors are multiplied on: how many calls wait at a time, in which order, and who helps whom."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from memos.infrastructure.host.threads import (
    SHORT,
    THREADS,
    multiply_alone,
    numpy_multiplies_alone,
    on_encoder_thread,
    on_encoder_threads,
    openmp_threads,
    torch_multiplies_alone,
)


def test_results_come_in_order_from_the_encoders_threads() -> None:
    names = on_encoder_threads((1, lambda n=n: (n, threading.current_thread().name)) for n in range(20))
    made = list(names)
    assert [n for n, _ in made] == list(range(20))
    assert all(name.startswith("memos-encoder") for _, name in made)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
def test_what_fills_an_index_stands_behind_who_asks() -> None:
    def behind() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0) - mine

    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert on_encoder_thread(behind, SHORT + 1) > on_encoder_thread(behind, SHORT) == 0


def test_no_more_calls_wait_than_there_are_threads() -> None:
    """A question that is asked meanwhile comes after these, not after all."""
    given = 0

    def calls() -> object:
        nonlocal given
        for n in range(20):
            given += 1
            yield 1, partial(int, n)

    results = on_encoder_threads(calls())  # type: ignore[arg-type]
    next(results)
    assert given == THREADS + 1


def test_what_a_call_raises_reaches_who_made_it_and_others_go_on() -> None:
    def fails() -> None:
        raise ValueError("not a text")

    with pytest.raises(ValueError, match="not a text"):
        on_encoder_thread(fails, 1)
    assert on_encoder_thread(lambda: 2, 1) == 2


def test_a_call_within_a_call_runs_at_once() -> None:
    """All threads may be waiting for what they have asked for themselves."""
    nested: Callable[[], int] = partial(on_encoder_thread, lambda: 1, 1)
    assert list(on_encoder_threads([(1, nested)] * (2 * THREADS))) == [1] * (2 * THREADS)


def test_a_question_does_not_wait_for_what_fills_an_index() -> None:
    free = threading.Event()
    filling = [threading.Thread(target=on_encoder_thread, args=(free.wait, SHORT + 1)) for _ in range(3 * THREADS)]
    for thread in filling:
        thread.start()
    assert on_encoder_thread(lambda: "answered", SHORT) == "answered"
    free.set()
    for thread in filling:
        thread.join()


def test_an_encoders_thread_multiplies_alone_and_no_other_thread_does() -> None:
    was = torch.get_num_threads()

    def alone() -> int:
        multiply_alone()
        return torch.get_num_threads()

    assert on_encoder_thread(alone, 1) == 1
    multiply_alone()  # not on such a thread: changes nothing
    assert torch.get_num_threads() == was


def test_torch_multiplies_alone_on_the_thread_that_wants_it() -> None:
    was, elsewhere = torch.get_num_threads(), list[int]()
    with torch_multiplies_alone():
        assert torch.get_num_threads() == 1
        other = threading.Thread(target=lambda: elsewhere.append(torch.get_num_threads()))
        other.start()
        other.join()
    assert [torch.get_num_threads()] == elsewhere == [was]


def test_numpy_multiplies_alone_until_the_last_who_wants_that_has_ended() -> None:
    def blas() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["prefix"].endswith("openblas")}

    was = blas()
    if not was:
        pytest.skip("NumPy multiplies without OpenBLAS here")
    entered, go_on = threading.Event(), threading.Event()

    def alone() -> None:
        with numpy_multiplies_alone():
            entered.set()
            go_on.wait(10)

    with numpy_multiplies_alone():
        other = threading.Thread(target=alone)
        other.start()
        assert entered.wait(10) and blas() == {1}
    assert blas() == {1}, "the other is still within"
    go_on.set()
    other.join()
    assert blas() == was
    with threadpool_limits(1, user_api="blas"):  # those of others hold
        assert blas() == {1}
    assert blas() == was


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of the process as Linux lists them")
def test_what_helped_a_thread_is_gone_when_it_has_multiplied() -> None:
    """Else they would count as running, and no other thread's helpers could wait without sleeping."""
    seen = list[int]()

    def multiplies() -> None:
        """On a thread that nobody has helped so far."""
        with threadpool_limits(3, user_api="openmp"):
            seen.append(len(os.listdir("/proc/self/task")))
            with openmp_threads():
                torch.randn(600, 600) @ torch.randn(600, 600)
                seen.append(len(os.listdir("/proc/self/task")))
            deadline = time.monotonic() + 10
            while len(os.listdir("/proc/self/task")) > seen[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(len(os.listdir("/proc/self/task")))

    thread = threading.Thread(target=multiplies)
    thread.start()
    thread.join()
    before, helped, after = seen
    assert helped > before >= after
