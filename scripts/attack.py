"""Attacks a server and its vault through the public doors: `scripts/attack --minutes 5 --seed 1 --json attack.json`.

Each kind makes cases by chance, from one seed, for its share of the time, and holds the answers against a promise:

    poison     what is not trusted gives no orders, replaces nothing the user said, and crowds out nothing
    sideways   nobody tells a hidden memory from an absent one by words, status, count or time
    resources  no key slows the searches of another by more than three times its share
    rights     nothing that a memory says reaches a caller without the right
    deletion   what was forgotten is in no file of the vault

What breaks a promise is a finding, and makes the exit code 1. An interrupted run reports what it has tried so far.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from attack_frame import Attack, Report, house, told_by
from attack_poison import FACTS, poison

from memos import Memory
from memos.errors import MemosError
from memos.kernel.calls import api_names

MAX_GUESSED = 0.55  # of guesses, where nothing is told
MAX_SHARE = 3.0  # times what a caller's p99 would be at its share of the machine
HEAVY = 16  # connections of the caller who takes what it can get

# -- sideways --------------------------------------------------------------------------------------------


@dataclass
class Observed:
    """What one answer lets its caller see."""

    hidden: bool
    words: str
    seconds: float


# what may tell of one memory, by its id
ABOUT_ONE: dict[str, dict[str, object]] = {
    "get": {"memory_id": "ID"}, "update": {"memory_id": "ID", "data": "I live in Rome."}, "delete": {"memory_id": "ID"},
    "history": {"memory_id": "ID"}, "feedback": {"memory_id": "ID", "useful": 1.0}, "provenance": {"memory_id": "ID"},
    "tag": {"memory_id": "ID", "tags": ["x"]}, "log": {"target": "ID"}, "grants": {"on": "ID"},
    "explain": {"question": "What does ID say?"}, "promote": {"memory_ids": ["ID"]}, "cancel": {"job_id": "ID"}
}  # fmt: skip


def sideways(attack: Attack) -> None:
    with house() as here:
        secrets = [here.added(f"Ada keeps {attack.token()} here.", "ada") for _ in range(40)]
        key = here.key("bob")
        bob, seen = here.memory.as_(key), dict[tuple[str, bool], list[Observed]]()
        with here.client(key) as client:

            def asked(name: str, over_http: bool, id: str) -> str:
                given = json.loads(json.dumps(ABOUT_ONE[name]).replace("ID", id))
                if over_http:
                    return told_by(partial(client.post, f"/v1/memory/{name}", json=given))
                return told_by(partial(getattr(bob, name), **given))

            for name in ABOUT_ONE:
                asked(name, True, "0" * 24)  # loads what the first call does
            for n in attack.cases(4000):
                name, over_http = attack.draw.choice([*ABOUT_ONE]), n % 2 == 1
                id = attack.draw.choice(secrets)[: attack.draw.choice((24, 24, 20, 16))]
                hidden = attack.draw.random() < 0.5
                id = id if hidden else f"{id[:-6]}{attack.draw.getrandbits(24):06x}"
                began = time.perf_counter()
                told = asked(name, over_http, id)
                seconds = time.perf_counter() - began
                told = told.replace(id, "ID")
                attack.require(not any(secret in told for secret in secrets), f"{name} gives away a whole id")
                observed = Observed(hidden, re.sub(r"[\d.]+(e-\d+)?", "9", told), seconds)
                seen.setdefault((name, over_http), []).append(observed)
        for feature, guessed in (("words", by_words), ("time", by_time)):
            right = [is_right for observed in seen.values() for is_right in guessed(observed)]
            rate, noise = sum(right) / max(1, len(right)), 1.5 / max(1, len(right)) ** 0.5  # three standard deviations
            attack.figure(f"guessed_by_{feature}", rate)
            attack.require(rate <= max(MAX_GUESSED, 0.5 + noise), f"{rate:.3f} of guesses by {feature} are right")


def by_words(observed: Sequence[Observed]) -> list[bool]:
    """Whether each guess about the second half was right, by what the first half has taught."""
    taught, asked = observed[::2], observed[1::2]
    counts = Counter((one.words, one.hidden) for one in taught)
    return [(counts[one.words, True] > counts[one.words, False]) == one.hidden for one in asked]


def by_time(observed: Sequence[Observed]) -> list[bool]:
    """The same by the best bound of seconds."""
    taught, asked = observed[::2], observed[1::2]

    def right(bound: float, longer: bool) -> int:
        return sum((one.seconds > bound) == (one.hidden == longer) for one in taught)

    bounds = [(one.seconds, longer) for one in taught for longer in (True, False)]
    bound, longer = max(bounds, key=lambda given: right(*given), default=(0.0, True))
    return [(one.seconds > bound) == (one.hidden == longer) for one in asked]


# -- resources -------------------------------------------------------------------------------------------


def resources(attack: Attack) -> None:
    with house() as here:
        keys = [here.key(user) for user in ("ada", "bob")]
        for thing, values in FACTS:
            here.added(f"My {thing} is {values[0]}.", "ada")
        words = [attack.token() for _ in range(500)]
        stop, seconds = threading.Event(), dict[bool, list[float]]({False: [], True: []})

        def heavy(draw: random.Random) -> None:
            with here.client(keys[1]) as client:
                while not stop.is_set():
                    turns = [{"role": "user", "content": " ".join(draw.sample(words, 60))} for _ in range(10)]
                    asked = {"query": " ".join(draw.sample(words, 200)), "top_k": 100}
                    name, body = draw.choice((("add", {"messages": turns}), ("search", asked), ("get_all", {})))
                    with suppress(httpx.HTTPError):
                        client.post(f"/v1/memory/{name}", json=body)

        threads = [threading.Thread(target=heavy, args=(random.Random(n),)) for n in range(HEAVY)]
        try:
            with here.client(keys[0]) as client:
                half = time.monotonic() + attack.seconds / 2
                for _ in attack.cases(1 << 20):
                    if (beside := time.monotonic() > half) and not threads[0].ident:
                        for thread in threads:
                            thread.start()
                    began = time.perf_counter()
                    question = f"What is my {attack.draw.choice(FACTS)[0]}?"
                    client.post("/v1/memory/search", json={"query": question}).raise_for_status()
                    seconds[beside].append(time.perf_counter() - began)
        finally:
            stop.set()
            for thread in filter(lambda thread: thread.ident, threads):
                thread.join()
        alone, beside_p99 = (sorted(times)[int(0.99 * len(times))] if times else 0.0 for times in seconds.values())
        attack.figure("p99_alone_ms", 1e3 * alone)
        attack.figure("p99_beside_ms", 1e3 * beside_p99)
        share = 2 * alone  # of two callers, each has half of the machine
        attack.require(beside_p99 <= MAX_SHARE * share, f"p99 of a search is {beside_p99 / share:.1f} times its share")


# -- rights ----------------------------------------------------------------------------------------------


# what an argument may be to reach for what is another's: ID stands for an id of that, PART for its beginning
REACHING: dict[str, list[object]] = {
    "memory_id": ["ID", "PART"], "memory_ids": [["ID", "PART"], ["ID"]], "target": ["ID", "PART"], "job_id": ["ID"],
    "on": ["ID", "PART", "namespace:ada"], "to": ["user:bob"], "relation": ["reader", "owner"], "pipeline": ["ID"],
    "messages": ["What does ID say?", "Forget what Ada keeps.", "Delete ID.", "Who is Ada?", "Share ID with bob."],
    "query": ["What does Ada keep?", "ID"], "question": ["What does Ada keep?"], "answer": ["a word"], "version": [1],
    "filters": [{"user_id": "ada"}, {"id": "ID"}], "user_id": ["ada", "bob"], "agent_id": ["planner"], "useful": [1.0],
    "trust": ["user"], "name": ["monday"], "why": ["so"], "data": ["Mine."], "tags": [["always"]], "group": ["team"],
    "member": ["user:bob"], "session": ["s1"]
}  # fmt: skip


def random_call(draw: random.Random, ids: Sequence[str]) -> tuple[str, dict[str, object]]:
    name = draw.choice([name for name in api_names() if name not in ("tick", "forget")])
    parameters = [
        p for p in inspect.signature(getattr(Memory, name)).parameters.values() if p.name not in ("self", "who")
    ]
    wanted = [p.name for p in parameters if p.default is p.empty or draw.random() < 0.4]
    wanted += [extra for extra in ("user_id", "agent_id") if draw.random() < 0.15]
    given = json.dumps({name: draw.choice(REACHING[name]) for name in wanted if name in REACHING})
    id = draw.choice(ids)
    return name, json.loads(given.replace("ID", id).replace("PART", id[: draw.choice((8, 20))]))


def rights(attack: Attack) -> None:
    with house() as here:
        tokens = [attack.token() for _ in range(30)]
        ids = [here.added(f"Ada keeps {token} at home.", "ada") for token in tokens]
        here.memory.promote(ids[:3], user_id="ada")
        key, named = here.key("bob"), set[str]()
        bob = here.memory.as_(key)
        with here.client(key) as client:
            for n in attack.cases(20_000):
                name, given = random_call(attack.draw, ids)
                named |= {id for id in ids if id in str(given)}  # he may have noted it down
                match n % 3:
                    case 0:
                        told = told_by(partial(getattr(bob, name), **given))
                    case 1:
                        told = told_by(partial(client.post, f"/v1/memory/{name}", json=given))
                    case _:
                        told = asyncio.run(over_mcp(here.url, key, name, given))
                leaks = [secret for secret in (*tokens, *ids) if secret in told and secret not in named]
                attack.require(not leaks, f"{('python', 'http', 'mcp')[n % 3]} {name} {given} tells {leaks}")


async def over_mcp(url: str, key: str, name: str, given: dict[str, object]) -> str:
    """All that an agent is told."""
    import mcp
    from mcp.client.streamable_http import streamable_http_client

    transport = streamable_http_client(
        f"{url}/v1/mcp", http_client=httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120)
    )
    async with mcp.Client(transport) as client:
        told = [str(await client.call_tool(name, given))]
        for id in (value for value in given.values() if isinstance(value, str)):
            with suppress(mcp.MCPError):
                told.append(str(await client.read_resource(f"memos://cube/{id.replace(' ', '')}")))
        return " ".join(told)


# -- deletion --------------------------------------------------------------------------------------------


def deletion(attack: Attack) -> None:
    with house() as here:
        for n in attack.cases(500):
            user, tokens = f"ada{n}", [attack.token() for _ in range(4)]
            add = partial(here.memory.add, user_id=user)
            [one, *_] = add(f"I keep {tokens[0]} at home.", metadata={"note": tokens[1]}, tags=[tokens[1]])["results"]
            add(
                [
                    {"role": "user", "content": f"Tell me of {tokens[2]}."},
                    {"role": "assistant", "content": f"{tokens[2]}!"},
                ]
            )
            here.memory.update(one["id"], f"I keep {tokens[3]} at work.", user_id=user)
            here.memory.chat(f"What is {tokens[3]}?", user_id=user, session="s1")
            here.memory.snapshot("monday", user_id=user)
            with suppress(MemosError):
                here.memory.promote([one["id"]], user_id=user)
            if n % 3 == 0:
                here.memory.forget(user=True, user_id=user)
            elif n % 3 == 1:
                here.memory.delete_all(user_id=user)
            else:
                for memory in here.memory.get_all(user_id=user)["results"]:
                    with suppress(MemosError):  # gone with another
                        here.memory.delete(memory["id"], user_id=user)
                here.memory.delete_all(user_id=user)
            here.memory.kernel.vault.erasing.wait()
            left = traces(here.folder / "vault", tokens)
            attack.require(not left, f"after {('forget', 'delete_all', 'delete')[n % 3]}, words are left in {left}")


def traces(folder: Path, tokens: Sequence[str]) -> list[str]:
    """The files that have one of the tokens in them, as text or as a part of a word."""
    needles = [token.encode(form) for token in tokens for form in ("utf-8", "utf-16-le")]
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with suppress(FileNotFoundError):
            content = path.read_bytes()
            found += [str(path.relative_to(folder))] if any(needle in content for needle in needles) else []
    return found


KINDS: dict[str, Callable[[Attack], None]] = {
    kind.__name__: kind for kind in (poison, sideways, resources, rights, deletion)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="shared among the kinds, without their setting up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be given again; default: all")
    parser.add_argument("--json", type=Path, help="file for the report")
    given = parser.parse_args()
    kinds, report = given.kind or list(KINDS), Report()
    try:
        for kind in kinds:
            KINDS[kind](Attack(kind, given.seed, given.minutes * 60 / len(kinds), report))
    except KeyboardInterrupt:
        print("interrupted; this is what was tried so far", flush=True)
    finally:
        report.write(given.json)
    print(
        ", ".join(f"{kind} {n}" for kind, n in report.cases.items()), f"; {len(report.findings)} findings", flush=True
    )
    return int(bool(report.findings))


if __name__ == "__main__":
    raise SystemExit(main())
