"""`memos bench adapters`: compares a batch with many adapters with the same batch on the base model."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memos.bench.baselines import random_adapters
from memos.bench.batch import answer_all
from memos.config import DecodeConfig, DistilConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request
from memos.plugins.progress import Show

KNOWN, BATCH, DISTINCT = (8, 50, 200), 8, (1, 2, 4, 8)
_DECODE = DecodeConfig(max_new_tokens=8)
_QUESTIONS = ("Where does Mira live?", "What does Tom do for a living?", "Who lives in Oslo?", "What is Eva's pet?")


def bench_adapters(host: Host, known: Sequence[int], repeats: int, seed: int, show: Show) -> dict[str, Any]:
    """Rows for a batch of 8 requests, medians in milliseconds; adapters are random, of the rank that promotion uses.

    ms: the whole batch under so many different adapters, which were together before; new_mix_ms: for the first time
    together; base_ms: the same without any. switch_ms: until an adapter is active that was never used before, its files
    read and checked; switch_in_memory_ms: one that was used before, with all the others known.
    """
    rows, config = list[dict[str, Any]](), DistilConfig(seed=seed)
    with tempfile.TemporaryDirectory() as name:
        folders = random_adapters(host.model, config, max(known), Path(name), host.fingerprint)
        cold, warm = list[float](), list[float]()
        for count in sorted(known):
            for folder in folders[len(cold) : count]:
                cold.append(_seconds(partial(host.model_under, [(folder,)])))
            for folder in folders[:count]:
                warm.append(_seconds(partial(host.model_under, [(folder,)])))
            batches = {n: _requests([folders[k % n % count] for k in range(BATCH)]) for n in DISTINCT}
            batches[0] = _requests([None] * BATCH)
            took: dict[int, list[float]] = {n: [] for n in batches}
            for _ in range(repeats + 1):
                for n, batch in batches.items():  # in turn, so that all meet the same machine
                    took[n].append(_seconds(partial(answer_all, host, batch, _DECODE)))
            new: dict[int, list[float]] = {n: [] for n in DISTINCT}
            for turn in range(repeats):
                for n in DISTINCT:
                    mix = [folders[(turn + 1 + k % n) % count] for k in range(BATCH)]
                    new[n].append(_seconds(partial(answer_all, host, _requests(mix), _DECODE)))
            ms, new_ms = ({n: statistics.median(s[-repeats:]) * 1e3 for n, s in t.items()} for t in (took, new))
            rows += [
                {"known": count, "distinct_in_batch": n, "ms": ms[n], "new_mix_ms": new_ms[n], "base_ms": ms[0]}
                for n in DISTINCT
            ]
            show("adapters", count, max(known))
    return {
        "model": host.describe(),
        "rank": config.rank,
        "batch": BATCH,
        "rows": rows,
        "switch_ms": statistics.median(cold) * 1e3,
        "switch_in_memory_ms": statistics.median(warm) * 1e3,
    }


def _requests(folders: Sequence[Path | None]) -> list[Request]:
    asked = [{"role": "user", "content": _QUESTIONS[n % len(_QUESTIONS)]} for n in range(len(folders))]
    return [
        Request((message,), adapters=(folder,) if folder else ())
        for message, folder in zip(asked, folders, strict=True)
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
