"""`memos bench search`: how long a search takes beside the embedding of its query, by the number of memories.

Texts are drawn from words that are as unequally frequent as those of a language (Zipf), in topics; the embedder draws a
vector for each text near that of its topic, so that no time goes into a model and every query has like memories.
Everything else is real: the vault, rights, indexes, the policy's score, late interaction over stored token vectors.
"""

from __future__ import annotations

import resource
import tempfile
import time
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from memos.config import RetrievalConfig, SchedulerConfig
from memos.cube import Form, Header, MemCube, Namespace, Rights, Text, new_id
from memos.infrastructure.mem_governance import MemGovernance
from memos.infrastructure.mem_vault import MemVault
from memos.interface.progress import Show
from memos.kernel import LIVE
from memos.operation.catalog import View
from memos.operation.mem_operator import MemOperator
from memos.operation.policies.memos import MemosPolicy

SHARES = {"everyone": 1.0, "team": 0.1, "guest": 0.001}  # users, and the share of the memories that each may read
_WORDS, _TOPICS, _LENGTH, _QUERY, _BATCH = 30_000, 400, 14, 6, 5000
_BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)


class _Drawn:
    """Texts of topics, and vectors for them. A text begins with the name of its topic."""

    dim = 384
    name = "drawn@1"

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._words = rng.normal(size=(_WORDS, self.dim)).astype(np.float32)
        self._topics = rng.normal(size=(_TOPICS, self.dim)).astype(np.float32)
        shares = 1 / np.arange(2, _WORDS + 2)
        self._shares = np.cumsum(shares / shares.sum())
        self._of_topic = [rng.permutation(_WORDS) for _ in range(_TOPICS)]  # each has frequent words of its own
        self.seconds = 0.0

    def text(self, rng: np.random.Generator, words: int) -> str:
        topic = int(rng.integers(_TOPICS))
        drawn = np.minimum(np.searchsorted(self._shares, rng.random(words)), _WORDS - 1)
        own = rng.random(words) < 0.5  # half of the words are the topic's, the others everybody's
        picked = np.where(own, self._of_topic[topic][drawn], drawn)
        return " ".join([f"t{topic}", *(f"w{word}" for word in picked.tolist())])

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        began = time.perf_counter()
        parts = texts if spans is None else [text[a:b] for text, (a, b) in zip(texts, spans, strict=True)]
        found = [self._reading(part) for part in parts]
        self.seconds += time.perf_counter() - began
        return found

    def _reading(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        topic, *words = text.split()
        tokens = self._words[[int(word[1:]) for word in words]]
        noise = np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dim)
        vector = self._topics[int(topic[1:])] + tokens.mean(0) + 0.5 * noise
        unit: np.ndarray = (vector / np.linalg.norm(vector)).astype(np.float32)
        return unit, np.clip(tokens * 30, -127, 127).astype(np.int8)


def bench_search(sizes: Sequence[int], queries: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each number of memories and each user: milliseconds beside the embedding (p50, p95), and of the first
    ten found by comparing with every memory, the share that is found through the indexes."""
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, MemVault(Path(folder)) as vault:
            rows += _rows(vault, size, queries, seed, show)
    return {"queries": queries, "rows": rows}


def _rows(vault: MemVault, size: int, queries: int, seed: int, show: Show) -> list[dict[str, Any]]:
    rng, drawn = np.random.default_rng(seed), _Drawn(seed)
    began = time.perf_counter()
    for start in range(0, size, _BATCH):
        with vault.transaction():
            for n in range(start, min(size, start + _BATCH)):
                vault.put(_cube(n, size, drawn.text(rng, _LENGTH)))
        show(f"keep {size:,}", min(size, start + _BATCH), size)
    kept_s = time.perf_counter() - began
    operator = MemOperator(vault, drawn, LIVE)
    began = time.perf_counter()
    operator.refresh()
    built_s = time.perf_counter() - began - drawn.seconds
    began = time.perf_counter()
    again = MemOperator(vault, drawn, LIVE, exact_ms=1e9)
    again.refresh()
    opened_s = time.perf_counter() - began
    governance = MemGovernance(vault)
    policy = MemosPolicy(SchedulerConfig(), RetrievalConfig())
    texts = [drawn.text(rng, _QUERY) for _ in range(queries)]
    rows = []
    for user, share in SHARES.items():
        caller = Namespace(user_id=user)
        view = View(caller, partial(governance.may_read, caller))
        operator.search(texts[0], 10, view, policy.score)  # the first sees that a graph is needed
        operator.settle()
        times, alike = [], []
        for n, text in enumerate(texts):
            spent, began = drawn.seconds, time.perf_counter()
            found = operator.search(text, 10, view, policy.score)
            cubes = vault.at(one.id for one in found)
            times.append((time.perf_counter() - began - (drawn.seconds - spent)) * 1e3)
            best = {one.id for one in again.search(text, 10, view, policy.score)}
            alike.append(len(best & {cube.id for cube in cubes}) / max(1, len(best)))
            show(f"search {size:,} as {user}", n + 1, queries)
        rows.append(
            {
                "cubes": size,
                "readable": share,
                "ms_p50": median(times),
                "ms_p95": quantiles(times, n=20)[-1],
                "of_exact": sum(alike) / len(alike),
                "keep_per_s": size / kept_s,
                "index_s": built_s,
                "open_s": opened_s,
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    return rows


def _cube(n: int, size: int, text: str) -> MemCube:
    """Every memory is everybody's to read who has the share for it."""
    readers = tuple(user for user, share in SHARES.items() if n < share * size)
    when = _BEGAN + timedelta(minutes=n)
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=f"user{n % 1000}"),
        rights=Rights(owner=f"user{n % 1000}", readers=readers),
        header=Header(created=when, said=when, thread=f"session{n // 10_000}", kind="event"),
        payload=Text(text=text),
    )
