"""What the process has freed goes back to the system, though something behind it is still used."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from memos.plugins.server.heap import trim
from memos.plugins.server.regularly import regularly

BLOCK, BLOCKS = 1 << 16, 1024  # 64 MiB, in pieces that glibc takes from its heap


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and calls glibc")
def test_freed_memory_is_given_back_while_the_server_lives() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        pytest.skip("not glibc")
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    kept = blocks.pop()  # behind the others: what lies before it is not given back by itself
    for block in blocks:
        libc.free(block)
    before = resident()

    freed = list[int]()

    async def live() -> None:
        async with regularly(0.01, lambda: freed.append(1)), regularly(0.01, trim):
            for _ in range(100):
                await asyncio.sleep(0.05)
                if resident() < before - BLOCK * BLOCKS // 2:
                    break

    asyncio.run(live())
    libc.free(kept)
    assert freed and resident() < before - BLOCK * BLOCKS // 2


_THREADS = """
import ctypes, sys, threading
from memos.plugins.server.heap import one_heap
if sys.argv[1] == "one":
    one_heap()
libc, all_have = ctypes.CDLL(None), threading.Barrier(4)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
threads = [threading.Thread(target=lambda: (libc.malloc(5000), all_have.wait())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="calls glibc")
def test_all_threads_allocate_from_one_heap() -> None:
    def heaps(which: str) -> int:
        command = [sys.executable, "-c", _THREADS, which]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.count("<heap nr=")

    assert heaps("one") == 1 < heaps("many")
