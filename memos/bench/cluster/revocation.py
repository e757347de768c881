"""How soon a right that is taken back, a deletion and the forgetting of a user reach every serving process.

Several `memos serve` share a vault. Somebody asks each of them for one memory, again and again, while others write;
then it is taken away at one of them. An answer that shows it is a leak where it was asked for after that call had
returned, or a second after it was made. Now and then one of them is killed meanwhile, and begun again.
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import SharedDatabase
from memos.bench.serve import Client, served
from memos.config import parse_config
from memos.errors import MemosError
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

_SHOWN_S = 30.0  # until every process must have shown a memory
_PROMISED_S = 1.0  # after which no process shows it, however long the call takes
_AFTER_S = 0.4  # for which each is asked on, at least
_PAUSE_S = 0.05  # between two writes
_KILLED_S = 0.3  # after which, at most, one is killed from when something is taken away
_TRIES = 20  # of a call whose server dies
_KINDS = ("revoke", "delete", "forget")
_THINGS = "tent lamp bicycle violin kettle atlas camera ladder rope drum globe chess board clock".split()
_CALLS = {"search": 0.6, "get": 0.3, "chat": 0.1}  # how often the memory is asked for in each way


@dataclass(frozen=True)
class _Memory:
    """What is asked for: a place that no other memory names."""

    id: str
    place: str
    question: str
    reader: str
    owner_key: str
    reader_key: str


@dataclass(frozen=True)
class _Answer:
    server: int
    began: float  # by time.monotonic
    ended: float
    is_shown: bool


@dataclass(frozen=True)
class _Revoked:
    """shown_ms: until the last question whose answer has the memory. answer_ms: until the last such answer. call_ms:
    until the call returned. leaks_after: those of the leaks that were asked for after that."""

    kind: str
    shown_ms: float
    answer_ms: float
    call_ms: float
    leaks: int
    leaks_after: int


@dataclass
class _Watch:
    """What is asked for now, and what was answered."""

    memory: _Memory | None = None
    answers: list[_Answer] = field(default_factory=list)
    steps: int = 0  # answers of all rounds
    calls: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, memory: _Memory | None) -> None:
        with self.lock:
            self.memory, self.answers = memory, []

    def asked_for(self, memory: _Memory, call: str, answer: _Answer) -> None:
        with self.lock:
            self.steps += 1
            self.calls[call] += 1
            if memory is self.memory:
                self.answers.append(answer)

    def seen(self) -> list[_Answer]:
        with self.lock:
            return list(self.answers)


class _Servers:
    """Processes that serve one vault. urls: where each listens now; "" while it is not there."""

    def __init__(self, vaults: Sequence[Path], settings: Sequence[str]) -> None:
        self._vaults, self._settings, self._stacks = vaults, settings, [ExitStack() for _ in vaults]
        self._processes: list[subprocess.Popen[str] | None] = [None for _ in vaults]
        self.urls, self._pool = ["" for _ in vaults], ThreadPoolExecutor(len(vaults))

    def __enter__(self) -> _Servers:
        list(self._pool.map(self._start, range(len(self._vaults))))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for stack in self._stacks:
            stack.close()

    def _start(self, n: int) -> None:
        self._processes[n], self.urls[n] = self._stacks[n].enter_context(served(self._vaults[n], *self._settings))

    def kill(self, n: int) -> Future[None]:
        """Kill it, and begin it again; done when it is there."""
        process, self.urls[n] = self._processes[n], ""
        assert process
        process.kill()
        self._stacks[n].close()
        return self._pool.submit(self._start, n)

    def one(self, rng: random.Random) -> str:
        """Where one of those that are there listens."""
        return rng.choice([url for url in self.urls if url])


def revocation(
    database: SharedDatabase, folder: Path, servers: int, rounds: int, kills: int, seed: int, show: Show
) -> dict[str, Any]:
    """kills: of servers, in as many of the rounds. revocation_p99_ms: from asking for it until the last question whose
    answer shows the memory. answers_p99_ms: until that answer has come. calls_p99_ms: until the call has returned,
    which erases, too. steps: all answers."""
    url, rng = database.url(), random.Random(seed)
    key = folder / "signing.key"  # one for all, as they sign one log
    settings = [f"governance.audit.key={key}", *([f"vault.url={url}"] if url else [])]
    vaults = [folder / f"server{n}" / ("vault" if url else "../vault") for n in range(servers)]
    for vault in vaults:
        vault.parent.mkdir()
    with MemOS(
        parse_config({"vault": {"url": url}, "governance": {"audit": {"key": str(key)}}}), vault=vaults[0]
    ) as kernel:
        users = ["writer", *(f"{role}{n}" for n in range(rounds) for role in ("owner", "reader"))]
        keys = {user: kernel.services.governing.add_key(user)[0] for user in users}
    struck = set(rng.sample(range(rounds), min(kills, rounds)))
    show("start servers", 0, servers)
    with _Servers(vaults, settings) as serving:
        show("start servers", servers, servers)
        watch = _Watch()
        threads = [threading.Thread(target=_ask, args=(watch, serving, n, seed)) for n in range(servers)]
        threads.append(threading.Thread(target=_write, args=(watch, serving, keys["writer"], seed)))
        for thread in threads:
            thread.start()
        try:
            rows = []
            for n in range(rounds):
                rows.append(_round(watch, serving, keys, n, n in struck, rng))
                show("take away", n + 1, rounds)
        finally:
            watch.over.set()
            for thread in threads:
                thread.join()
    return _summed(rows, watch, servers) | {"server_kills": len(struck)}


def _summed(rows: Sequence[_Revoked], watch: _Watch, servers: int) -> dict[str, Any]:
    times = sorted(row.shown_ms for row in rows)
    by_kind = {kind: sorted(row.shown_ms for row in rows if row.kind == kind) for kind in _KINDS}
    return {
        "servers": servers,
        "revocations": len(rows),
        "revocation_p50_ms": _share(times, 0.5),
        "revocation_p99_ms": _share(times, 0.99),
        "revocation_max_ms": times[-1],
        "answers_p99_ms": _share(sorted(row.answer_ms for row in rows), 0.99),
        "calls_p99_ms": _share(sorted(row.call_ms for row in rows), 0.99),
        "leaks": sum(row.leaks for row in rows),
        "leaks_after_return": sum(row.leaks_after for row in rows),
        "steps": watch.steps,
        "asked_by": dict(watch.calls),
        "by_kind_p99_ms": {kind: _share(some, 0.99) for kind, some in by_kind.items() if some},
    }


def _share(ordered: list[float], share: float) -> float:
    """The smallest that at least this share are not above."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _round(
    watch: _Watch, serving: _Servers, keys: dict[str, str], n: int, struck: bool, rng: random.Random
) -> _Revoked:
    """struck: one server is killed meanwhile. Raises MemosError."""
    kind, memory = _KINDS[n % len(_KINDS)], _told(serving, keys, n, rng)
    watch.look_at(memory)
    _until(watch, serving, since=0.0, shown=True)
    with ThreadPoolExecutor(1) as beside:
        delay, hit = rng.uniform(0, _KILLED_S), rng.randrange(len(serving.urls))
        killed = beside.submit(_kill, serving, hit, delay) if struck else None
        began, returned = _taken_away(kind, memory, serving, rng)
        if killed:
            killed.result().result()
    _until(watch, serving, since=returned, shown=False)
    showing = [answer for answer in watch.seen() if answer.is_shown]
    watch.look_at(None)
    asked = max([began, *(answer.began for answer in showing)])
    answered = max([began, *(answer.ended for answer in showing)])
    leaks = sum(answer.began > min(returned, began + _PROMISED_S) for answer in showing)
    after = sum(answer.began > returned for answer in showing)
    asked_ms, answered_ms, returned_ms = ((moment - began) * 1e3 for moment in (asked, answered, returned))
    return _Revoked(kind, asked_ms, answered_ms, returned_ms, leaks, after)


def _kill(serving: _Servers, n: int, delay: float) -> Future[None]:
    time.sleep(delay)
    return serving.kill(n)


def _taken_away(kind: str, memory: _Memory, serving: _Servers, rng: random.Random) -> tuple[float, float]:
    """When the call was made, and when it returned. Where the server that it was made to dies, it is made to another
    one, which may find it done. Raises MemosError."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "revoke": ("revoke", {"on": memory.id, "to": memory.reader}),
        "delete": ("delete", {"memory_id": memory.id}),
        "forget": ("forget", {"user": True}),
    }
    name, given = calls[kind]
    for again in range(_TRIES):
        began = time.monotonic()
        with closing(Client(serving.one(rng), memory.owner_key)) as client:
            try:
                # done by then: what it was of is gone, and of one who is forgotten the key
                done = 401 if kind == "forget" else 404
                _called(client, name, (done,) if again else (), **given)
                return began, time.monotonic()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.01)
    raise MemosError(f"{name} was cut off {_TRIES} times; look at the servers' logs")


def _told(serving: _Servers, keys: dict[str, str], n: int, rng: random.Random) -> _Memory:
    """A memory of a new user, which another new one may read."""
    owner, reader, place, thing = f"owner{n}", f"reader{n}", f"Zan{rng.randrange(1 << 24)}ibar", rng.choice(_THINGS)
    with closing(Client(serving.one(rng), keys[owner])) as client:
        reply = _called(client, "add", messages=f"Ada keeps the {thing} in {place}.")
        id = reply["results"][0]["id"]
        _called(client, "grant", on=id, to=reader)
    return _Memory(id, place, f"Where does Ada keep the {thing}?", reader, keys[owner], keys[reader])


def _called(client: Client, name: str, also: Sequence[int] = (), **given: Any) -> Any:
    """also: statuses that are as good. Raises MemosError where it is refused, and as `Client.call`."""
    status, reply = client.call(name, **given)
    if status not in (200, *also):
        raise MemosError(f"{name} was answered with {status}: {str(reply)[:300]}; look at the server's log")
    return reply


def _until(watch: _Watch, serving: _Servers, since: float, shown: bool) -> None:
    """Wait until every server has shown the memory, or has been asked for it often enough since. Raises MemosError."""
    until, enough = time.monotonic() + _SHOWN_S, time.monotonic() + (0 if shown else _AFTER_S)
    while time.monotonic() < until:
        fresh = [answer for answer in watch.seen() if answer.began > since and (answer.is_shown or not shown)]
        times = Counter(answer.server for answer in fresh)
        if time.monotonic() > enough and all(times[n] >= (1 if shown else 2) for n in range(len(serving.urls))):
            return
        time.sleep(0.01)
    raise MemosError(f"not every server has {'shown a memory' if shown else 'answered'} within {_SHOWN_S:g} s")


def _ask(watch: _Watch, serving: _Servers, n: int, seed: int) -> None:
    """Ask one server for the memory in question, as its reader, in every way."""
    rng, known, client = random.Random(f"{seed} {n}"), None, Client("http://nowhere", "")
    while not watch.over.is_set():
        memory, url = watch.memory, serving.urls[n]
        if memory is None or not url:
            time.sleep(0.01)
            continue
        if known != (memory, url):
            client.close()
            known, client = (memory, url), Client(url, memory.reader_key)
        [call] = rng.choices(list(_CALLS), list(_CALLS.values()))
        given: dict[str, dict[str, Any]] = {
            "search": {"query": memory.question, "top_k": 5},
            "get": {"memory_id": memory.id},
            "chat": {"messages": memory.question},
        }
        began = time.monotonic()
        try:
            _, reply = client.call(call, **given[call])
        except (OSError, http.client.HTTPException, ValueError):
            client.close()
            continue
        is_shown = memory.place in json.dumps(reply)
        watch.asked_for(memory, call, _Answer(n, began, time.monotonic(), is_shown))
    client.close()


def _write(watch: _Watch, serving: _Servers, key: str, seed: int) -> None:
    """Keep memories of somebody else at all servers meanwhile."""
    rng, count = random.Random(seed), 0
    while not watch.over.wait(_PAUSE_S):
        count += 1
        with closing(Client(serving.one(rng), key)) as client, suppress(OSError, http.client.HTTPException, ValueError):
            client.call("add", messages=f"Ben keeps box number {count} in room {rng.randrange(999)}.")
