"""A process whose first calls come at once, on many threads."""

import subprocess
import sys

import pytest

_FIRST = """
import sys, threading
from memos import Memory

memory, failed, kernels = Memory(vault=sys.argv[1]), [], set()
start = threading.Barrier(9)

def first(call):
    start.wait()
    try:
        call()
        kernels.add(id(memory.kernel.host))
    except Exception as error:
        failed.append(repr(error))

calls = 3 * (
    lambda: memory.chat("hello", user_id="ada"),
    lambda: memory.search("tea", user_id="ada"),
    lambda: memory.add("I drink tea.", user_id="ada"),
)
threads = [threading.Thread(target=first, args=(call,)) for call in calls]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(kernels), failed)
"""


@pytest.mark.slow
def test_first_calls_that_come_at_once_are_all_answered_by_one_model(tmp_path):
    done = subprocess.run([sys.executable, "-c", _FIRST, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "1 []\n", done.stdout + done.stderr


_LAST = """
import threading
from memos.config import Config
from memos.infrastructure.host.encoders.embedder import Embedder

embedder, ended = Embedder(Config().embedder), threading.main_thread()
embedder.embed(["tea"])

def late():
    ended.join()
    print(embedder.embed(["coffee"]).shape)

threading.Thread(target=late).start()
"""


def test_a_thread_that_outlives_the_main_one_can_still_read():
    done = subprocess.run([sys.executable, "-c", _LAST], capture_output=True, text=True)
    assert done.stdout == "(1, 384)\n", done.stdout + done.stderr
