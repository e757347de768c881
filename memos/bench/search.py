"""`memos bench search`: measures what a search takes beside embedding its query, by the number of memories.

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
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from memos.config import RetrievalConfig, SchedulerConfig
from memos.cube import ANSWERING, Form, Header, MemCube, Namespace, Rights, Text, new_id
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding.catalog import View
from memos.operation.finding.mem_operator import MemOperator
from memos.operation.policies.memos import MemosPolicy
from memos.plugins.progress import Show
from memos.rights import Caller, Grant

SHARES = {"everyone": 1.0, "team": 0.1, "guest": 0.001}  # users, and the share of the memories that each may read
_USERS = 1000  # whose the memories are
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
    ten found by comparing with every memory, the share that is found through the indexes.

    open_s: until all is indexed, from the memories; open_from_snapshot_s: from the indexes that were kept; rss_mb: the
    most memory that the process of that and of a search takes, about 200 MB of it code and this benchmark's words.
    """
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            with MemVault(Path(folder)) as vault:
                found = _rows(vault, size, queries, seed, show)
            open_from_snapshot_s, rss_mb = _opened(Path(folder), seed)
            rows += [row | {"open_from_snapshot_s": open_from_snapshot_s, "rss_mb": rss_mb} for row in found]
    return {"queries": queries, "rows": rows}


def _opened(folder: Path, seed: int) -> tuple[float, float]:
    """Seconds until a process of its own has opened the vault, and the most MB that it takes."""
    with ProcessPoolExecutor(1, get_context("spawn")) as another:
        return another.submit(_open, folder, seed).result()


def _open(folder: Path, seed: int) -> tuple[float, float]:
    drawn = _Drawn(seed)
    began = time.perf_counter()
    with MemVault(folder) as vault:
        operator = MemOperator(vault, drawn, ANSWERING)
        operator.refresh()
        took = time.perf_counter() - began
        operator.search(drawn.text(np.random.default_rng(seed), _QUERY), 10, View("all", lambda *_: True))
    return took, most_mb()


def most_mb() -> float:
    """The most memory that this process had. The system's usage counts what it was forked from, too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    [peak] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024


def _rows(vault: MemVault, size: int, queries: int, seed: int, show: Show) -> list[dict[str, Any]]:
    rng, drawn = np.random.default_rng(seed), _Drawn(seed)
    began = time.perf_counter()
    for start in range(0, size, _BATCH):
        with vault.transaction():
            for n in range(start, min(size, start + _BATCH)):
                vault.put(_cube(n, drawn.text(rng, _LENGTH)))
        show(f"keep {size:,}", min(size, start + _BATCH), size)
    kept_s = time.perf_counter() - began
    with vault.transaction():
        for user, share in SHARES.items():
            for n in range(round(share * _USERS)):
                over, to = Namespace(user_id=f"user{n}"), Namespace(user_id=user)
                vault.grants.put(Grant(on=over, to=to, relation="reader"), "bench")
    operator = MemOperator(vault, drawn, ANSWERING)
    began = time.perf_counter()
    operator.refresh()
    built_s = time.perf_counter() - began - drawn.seconds
    open_s, _ = _opened(vault.path, seed)
    again = MemOperator(vault, drawn, ANSWERING, exact_ms=1e9)
    governance = MemGovernance(vault)
    policy = MemosPolicy(SchedulerConfig(), RetrievalConfig())
    texts = [drawn.text(rng, _QUERY) for _ in range(queries)]
    rows = []
    for user, share in SHARES.items():
        caller = Caller(Namespace(user_id=user))
        view = View(*governance.sight(caller))
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
                "open_s": open_s,
            }
        )
    operator.close()
    return rows


def _cube(n: int, text: str) -> MemCube:
    when = _BEGAN + timedelta(minutes=n)
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=f"user{n % _USERS}"),
        rights=Rights(owner=f"user{n % _USERS}"),
        header=Header(created=when, said=when, thread=f"session{n // 10_000}", kind="event"),
        payload=Text(text=text),
    )
