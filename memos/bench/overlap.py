"""`memos bench overlap`: measures how much of bringing KV hides behind the forward that it is for."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memos.config import DecodeConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.model.decode import DecodeRow, now
from memos.infrastructure.host.model.measure import PAUSE_S, drop_from_page_cache
from memos.plugins.progress import Show

CONTEXTS = (583, 2773, 6064)  # tokens
_ONE = DecodeConfig(max_new_tokens=1)


def bench_overlap(
    host: Host, contexts: Sequence[int], query: int, repeats: int, seed: int, show: Show
) -> dict[str, Any]:
    """A row for each context and where its KV comes from, medians in milliseconds.

    bring: until all layers are on the device, with nothing else to do; forward: of the query over KV that is there, as
    after a prefetch; together: until the first token, when bringing begins with the request. hidden: the share of the
    shorter of the two that the other one covers.
    """
    rng, rows = random.Random(seed), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for n, context in enumerate(contexts, start=1):
            kept = encode(host.model, [rng.randrange(10, 2000) for _ in range(context)])
            path = Path(folder) / f"{context}.safetensors"
            host.save_kv(kept, path)
            ids = tuple(rng.randrange(10, 2000) for _ in range(query))
            rows += [
                {"context": context, "query": query, "tier": tier, "bytes": kept.bytes}
                | _figures(host, kept, ids, bring, repeats)
                for tier, bring in _tiers(host, kept, path).items()
            ]
            show("overlap", n, len(contexts))
    return {"model": host.describe(), "rows": rows}


def _tiers(host: Host, kept: Activation, path: Path) -> dict[str, Callable[[bool], Activation]]:
    """Ways to bring the KV; True: from where it lies when nobody has used it for long."""

    def from_disk(cold: bool) -> Activation:
        if cold:
            drop_from_page_cache(path)
        return host.load_kv(path)

    out: dict[str, Callable[[bool], Activation]] = {"disk": from_disk, "page cache": lambda _: host.load_kv(path)}
    if host.model.device.type != "cpu":
        on_host = kept.on("cpu")
        out["host"] = lambda _: on_host.on(host.model.device)
    return out


def _figures(
    host: Host, kept: Activation, ids: tuple[int, ...], bring: Callable[[bool], Activation], repeats: int
) -> dict[str, float]:
    took: dict[str, list[float]] = {"bring": [], "forward": [], "together": []}
    for _ in range(repeats + 1):
        time.sleep(PAUSE_S)  # as requests come
        took["bring"].append(_seconds(host, lambda: [layer for layer in bring(True).layers]))
        took["forward"].append(_seconds(host, lambda: host.decoder.complete(host.model, [DecodeRow(ids, kept)], _ONE)))
        took["together"].append(
            _seconds(host, lambda: host.decoder.complete(host.model, [DecodeRow(ids, bring(True))], _ONE))
        )
    load, forward, together = (statistics.median(seconds[1:]) * 1e3 for seconds in took.values())  # the first warms up
    hidden = min(1.0, max(0.0, (load + forward - together) / min(load, forward)))
    return {"bring_ms": load, "forward_ms": forward, "together_ms": together, "hidden": hidden}


def _seconds(host: Host, work: Callable[[], object]) -> float:
    began = now(host.model)
    work()
    return now(host.model) - began
