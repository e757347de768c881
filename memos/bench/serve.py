"""`memos bench serve`: puts a server process on the small model under many clients that add, search and chat.

Each client has a key of its own. Before the load, calls over HTTP to an idle server take turns with the same calls in
Python of the memory that it serves, in one process: the difference is what the door costs, with the client's part.
After the load the server is stopped, and every add that it acknowledged is looked for in the vault.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from memos.config import ServeConfig
from memos.errors import InputError, MemosError
from memos.interface.doors.api.memory import Memory
from memos.plugins.progress import Show

_PAIRS, _FIRST, _KNOWN = 150, 10, 40  # calls of each kind that are compared, and before; memories there are then
_CALLS = {"add": 0.3, "search": 0.5, "chat": 0.2}  # how often each is made
_WARM = 0.2  # of the time, after which memory is measured
_PATIENCE_S = 600.0  # for a start, and an answer, of 64 clients on a slow machine
_NAMES = "Ada Ben Cleo Dan Eve Finn Gus Hana Ivo Jun Kim Lea Max Nia Olga Pia Quin Rosa Sam Tom".split()
_THINGS = "tent lamp bicycle violin kettle atlas camera ladder rope drum globe chess board clock".split()
_PLACES = "Oslo Rome Lima Cairo Delhi Tokyo Quito Malta Porto Berlin Vienna Dublin".split()


@dataclass
class _Told:
    """What the clients saw. kept: acknowledged adds, (client, id) to what was said."""

    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[int] = field(default_factory=Counter)
    kept: dict[tuple[int, str], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def bench_serve(clients: int, seconds: float, seed: int, show: Show) -> dict[str, Any]:
    """errors: answers other than 200 and 429, and none at all. rss_growth: of the server's memory, from after a fifth
    of the time to the end, as a share. lost_writes: acknowledged adds that are not in the vault afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        vault = Path(folder) / "vault"
        with Memory(vault=vault) as memory:
            keys = [memory.kernel.services.governing.add_key(f"client{n}")[0] for n in range(clients)]
            overhead = _overhead(memory, keys[0], show)
        with served(vault) as (server, url):
            told = _Told()
            rss = _load(url, keys, seconds, seed, told, show)
            began = time.perf_counter()
            server.send_signal(signal.SIGTERM)
            code = server.wait(_PATIENCE_S)
            stopped_s = time.perf_counter() - began
        lost = _lost(vault, keys, told.kept)
    every = sorted(ms for some in told.ms.values() for ms in some)
    if not every:
        raise InputError(f"no request was answered within {seconds:g} s; give more --seconds, or fewer --clients")
    warm, end = rss[int(len(rss) * _WARM) :][:5], rss[-5:]
    return {
        "clients": clients,
        "seconds": seconds,
        "requests": len(every),
        "errors": sum(n for status, n in told.statuses.items() if status not in (200, 429)) + (code != 0),
        "rejected_429": told.statuses[429],
        "p50_ms": _share(every, 0.5),
        "p95_ms": _share(every, 0.95),
        "door_overhead_ms_p50": median(ms for some in overhead.values() for ms in some),
        "rss_growth": median(end) / median(warm) - 1,
        "lost_writes": lost,
        "acknowledged_adds": len(told.kept),
        "rss_mib": round(median(end) / (1 << 20)),
        "stopped_s": stopped_s,
        "rows": [
            {
                "call": name,
                "requests": len(told.ms[name]),
                "p50_ms": _share(sorted(told.ms[name]), 0.5),
                "p95_ms": _share(sorted(told.ms[name]), 0.95),
            }
            for name in _CALLS
            if told.ms[name]
        ],
        "overhead_ms_p50": {name: median(some) for name, some in overhead.items()},
        "problems": told.problems[:10],
    }


def _share(ordered: list[float], share: float) -> float:
    return ordered[int((len(ordered) - 1) * share)]


# -- the server ------------------------------------------------------------------------------------------------


@contextmanager
def served(vault: Path, *settings: str, threads: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process with these settings (`--set`), and where it listens. threads: that share one multiplication;
    None: as the environment has it."""
    environment = {**os.environ, **({} if threads is None else {"OMP_NUM_THREADS": str(threads)})}
    given = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "memos", "serve", "--vault", str(vault), "--port", "0", *given]
    with (vault.parent / "log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout
            found = re.search(r"http://\S+?(?=;)", server.stdout.readline())
            if not found:
                log.seek(0)
                raise MemosError(f"the server did not start: {log.read()[-500:].strip()}; try `memos serve` by itself")
            yield server, found[0]
        finally:
            server.kill()
            server.wait()


class Client:
    """Calls of the Memory API over one connection that is kept."""

    def __init__(self, url: str, key: str) -> None:
        at = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=_PATIENCE_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def call(self, name: str, **given: Any) -> tuple[int, Any]:
        """(status, reply). Raises OSError, HTTPException where there is none."""
        self._connection.request("POST", f"/v1/memory/{name}", json.dumps(given), self._headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def rss(self) -> float:
        """Bytes of the server's memory."""
        self._connection.request("GET", "/metrics", headers=self._headers)
        told = self._connection.getresponse().read().decode()
        return float(next(line for line in told.splitlines() if line.startswith("process_resident")).split()[1])

    def close(self) -> None:
        self._connection.close()


def _overhead(memory: Memory, key: str, show: Show) -> dict[str, list[float]]:
    """ms that a call takes over HTTP beyond the same call in Python, by its name."""
    mine = memory.as_(key)
    said = [f"{name} keeps the {thing} in Oslo." for name in _NAMES for thing in _THINGS][:_KNOWN]
    ids = [mine.add(text)["results"][0]["id"] for text in said]
    over: dict[str, list[float]] = {"get": [], "get_all": [], "search": []}
    with _beside(memory) as url, closing(Client(url, key)) as client:
        for n in range(_PAIRS + _FIRST):
            query = f"Where does {_NAMES[n % len(_NAMES)]} keep thing number {n}?"
            given: dict[str, dict[str, Any]] = {
                "get": {"memory_id": ids[n % _KNOWN]},
                "get_all": {},
                "search": {"query": query},
            }
            for name, ms in over.items():
                calls = [partial(getattr(mine, name), **given[name]), partial(client.call, name, **given[name])]
                took = {call: _ms(call) for call in (calls if n % 2 else calls[::-1])}
                if n >= _FIRST:  # before, what is needed is loaded
                    ms.append(took[calls[1]] - took[calls[0]])
            show("compare with Python", n + 1, _PAIRS + _FIRST)
    return over


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


@contextmanager
def _beside(memory: Memory) -> Iterator[str]:
    """A server of a memory in this process, and where it listens."""
    import uvicorn

    from memos.plugins.server.app import create_app
    from memos.plugins.server.run import listening

    server = uvicorn.Server(uvicorn.Config(create_app(memory, ServeConfig(), loopback=True), log_config=None))
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"  # whoever connects waits until it is taken in
        finally:
            server.should_exit = True
            thread.join()


# -- the load --------------------------------------------------------------------------------------------------


def _load(url: str, keys: list[str], seconds: float, seed: int, told: _Told, show: Show) -> list[float]:
    """Let the clients call for so long; the server's memory in bytes, second by second."""
    until, lock, rss = time.monotonic() + seconds, threading.Lock(), list[float]()
    clients = [
        threading.Thread(target=_call, args=(url, n, key, until, seed, told, lock)) for n, key in enumerate(keys)
    ]
    for client in clients:
        client.start()
    watch = Client(url, keys[0])
    while (left := until - time.monotonic()) > 0:
        rss.append(watch.rss())
        show("load", int(seconds - left), int(seconds))
        time.sleep(min(1.0, left))
    rss.append(watch.rss())
    for client in clients:
        client.join()
    return rss


def _call(url: str, n: int, key: str, until: float, seed: int, told: _Told, lock: threading.Lock) -> None:
    rng, client, count = random.Random(f"{seed} {n}"), Client(url, key), 0
    while time.monotonic() < until:
        [name] = rng.choices(list(_CALLS), list(_CALLS.values()))
        who, thing, place = rng.choice(_NAMES), rng.choice(_THINGS), rng.choice(_PLACES)
        count += 1
        text = f"{who} keeps {thing} number {count} in {place}."
        arguments: dict[str, dict[str, Any]] = {
            "add": {"messages": text},
            "search": {"query": f"Where does {who} keep the {thing}?", "top_k": 5},
            "chat": {"messages": f"Where does {who} live?"},
        }
        began = time.perf_counter()
        try:
            status, reply = client.call(name, **arguments[name])
        except (OSError, http.client.HTTPException, ValueError) as error:
            client.close()  # the next call connects anew
            status, reply = 0, repr(error)
        ms = (time.perf_counter() - began) * 1e3
        with lock:
            told.statuses[status] += 1
            if status == 200:
                told.ms[name].append(ms)
            elif status != 429:
                told.problems.append(f"{name}: {status} {str(reply)[:300]}")
            if status == 200 and name == "add":
                told.kept[n, reply["results"][0]["id"]] = text
        if status == 429:
            time.sleep(0.2)
    client.close()


def _lost(vault: Path, keys: list[str], kept: dict[tuple[int, str], str]) -> int:
    """How many acknowledged adds the vault does not hold, once it is opened again."""
    with Memory(vault=vault) as memory:
        lost = 0
        for n, key in enumerate(keys):
            there = memory.as_(key).get_all(form="plaintext", limit=1 << 30)["results"]  # type: ignore[arg-type]
            texts = {told["id"]: told["memory"] for told in there}
            lost += sum(texts.get(id) != text for (client, id), text in kept.items() if client == n)
    return lost
