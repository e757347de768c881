"""How soon a right that is taken back, a deletion and the forgetting of a user reach every serving process.

Several `memos serve` share a vault. Somebody asks each of them for one memory, again and again, while others write;
then it is taken away at one of them. An answer that shows it is a leak where it was asked for after that call had
returned, or a second after it was made.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import SharedDatabase
from memos.bench.serve import Client, served
from memos.config import parse_config
from memos.errors import MemosError
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS

_SHOWN_S = 30.0  # until every process must have shown a memory
_PROMISED_S = 1.0  # after which no process shows it, however long the call takes
_AFTER_S = 0.4  # for which each is asked on, at least
_PAUSE_S = 0.05  # between two questions to one server, and between two writes
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


def revocation(
    database: SharedDatabase, folder: Path, servers: int, rounds: int, seed: int, show: Show
) -> dict[str, Any]:
    """revocation_p99_ms: from asking for it until the last question whose answer shows the memory. answers_p99_ms:
    until that answer has come. calls_p99_ms: until the call has returned, which erases, too. steps: all answers."""
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
    with ExitStack() as running, ThreadPoolExecutor(servers) as starting:
        show("start servers", 0, servers)
        urls = [url for _, url in starting.map(lambda vault: running.enter_context(served(vault, *settings)), vaults)]
        show("start servers", servers, servers)
        watch = _Watch()
        threads = [threading.Thread(target=_ask, args=(watch, urls[n], n, seed)) for n in range(servers)]
        threads.append(threading.Thread(target=_write, args=(watch, urls, keys["writer"], seed)))
        for thread in threads:
            thread.start()
        try:
            rows = []
            for n in range(rounds):
                rows.append(_round(watch, urls, keys, n, rng))
                show("take away", n + 1, rounds)
        finally:
            watch.over.set()
            for thread in threads:
                thread.join()
    return _summed(rows, watch, servers)


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


def _round(watch: _Watch, urls: list[str], keys: dict[str, str], n: int, rng: random.Random) -> _Revoked:
    """Raises MemosError."""
    kind, memory = _KINDS[n % len(_KINDS)], _told(urls, keys, n, rng)
    watch.look_at(memory)
    _until(watch, urls, since=0.0, shown=True)
    with closing(Client(rng.choice(urls), memory.owner_key)) as client:
        began = time.monotonic()
        if kind == "revoke":
            _called(client, "revoke", on=memory.id, to=memory.reader)
        elif kind == "delete":
            _called(client, "delete", memory_id=memory.id)
        else:
            _called(client, "forget", user=True)
        returned = time.monotonic()
    _until(watch, urls, since=returned, shown=False)
    showing = [answer for answer in watch.seen() if answer.is_shown]
    watch.look_at(None)
    asked = max([began, *(answer.began for answer in showing)])
    answered = max([began, *(answer.ended for answer in showing)])
    leaks = sum(answer.began > min(returned, began + _PROMISED_S) for answer in showing)
    after = sum(answer.began > returned for answer in showing)
    asked_ms, answered_ms, returned_ms = ((moment - began) * 1e3 for moment in (asked, answered, returned))
    return _Revoked(kind, asked_ms, answered_ms, returned_ms, leaks, after)


def _told(urls: list[str], keys: dict[str, str], n: int, rng: random.Random) -> _Memory:
    """A memory of a new user, which another new one may read."""
    owner, reader, place, thing = f"owner{n}", f"reader{n}", f"Zan{rng.randrange(1 << 24)}ibar", rng.choice(_THINGS)
    with closing(Client(rng.choice(urls), keys[owner])) as client:
        reply = _called(client, "add", messages=f"Ada keeps the {thing} in {place}.")
        id = reply["results"][0]["id"]
        _called(client, "grant", on=id, to=reader)
    return _Memory(id, place, f"Where does Ada keep the {thing}?", reader, keys[owner], keys[reader])


def _called(client: Client, name: str, **given: Any) -> Any:
    """Raises MemosError where it is refused."""
    status, reply = client.call(name, **given)
    if status != 200:
        raise MemosError(f"{name} was answered with {status}: {str(reply)[:300]}; look at the server's log")
    return reply


def _until(watch: _Watch, urls: list[str], since: float, shown: bool) -> None:
    """Wait until every server has shown the memory, or has been asked for it often enough since. Raises MemosError."""
    until, enough = time.monotonic() + _SHOWN_S, time.monotonic() + (0 if shown else _AFTER_S)
    while time.monotonic() < until:
        fresh = [answer for answer in watch.seen() if answer.began > since and (answer.is_shown or not shown)]
        times = Counter(answer.server for answer in fresh)
        if time.monotonic() > enough and all(times[n] >= (1 if shown else 2) for n in range(len(urls))):
            return
        time.sleep(0.01)
    raise MemosError(f"not every server has {'shown a memory' if shown else 'answered'} within {_SHOWN_S:g} s")


def _ask(watch: _Watch, url: str, n: int, seed: int) -> None:
    """Ask one server for the memory in question, as its reader, in every way."""
    rng, known, client = random.Random(f"{seed} {n}"), None, Client(url, "")
    while not watch.over.is_set():
        if (memory := watch.memory) is None:
            time.sleep(0.01)
            continue
        if memory is not known:
            client.close()
            known, client = memory, Client(url, memory.reader_key)
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
        time.sleep(_PAUSE_S)
    client.close()


def _write(watch: _Watch, urls: list[str], key: str, seed: int) -> None:
    """Keep memories of somebody else at all servers meanwhile."""
    rng, count = random.Random(seed), 0
    clients = [Client(url, key) for url in urls]
    while not watch.over.wait(_PAUSE_S):
        count += 1
        client = rng.choice(clients)
        try:
            client.call("add", messages=f"Ben keeps box number {count} in room {rng.randrange(999)}.")
        except (OSError, http.client.HTTPException, ValueError):
            client.close()
    for client in clients:
        client.close()
