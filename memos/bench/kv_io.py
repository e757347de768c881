"""`memos bench kv-io`: compares fork, save and load of a KV cache with a raw read of the same bytes."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from memos.infrastructure.host.forward import forward
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import encode
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.host.model.decode import DecodeRow, prefill_inputs
from memos.infrastructure.host.model.measure import drop_from_page_cache
from memos.interface.doors.progress import Show

_TIMES = 5


def bench_kv_io(host: Host, tokens: int, seed: int, show: Show) -> dict[str, Any]:
    """Medians. tier disk: not in the page cache; tier host: in it. share_of_raw: of a plain read of the
    same file into new memory.

    fidelity_kl: nats between the first answer token over the stored cache and over the one in memory, on random
    ids: a floor for what a codec loses, not a figure of a trained model.
    """
    rng = random.Random(seed)
    kept = encode(host.model, [rng.randrange(10, 2000) for _ in range(tokens)])
    fork_ms = statistics.median(_seconds(kept.fork) for _ in range(50)) * 1e3
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        query = tuple(rng.randrange(10, 2000) for _ in range(32))
        codecs = storing_codecs()
        for n, codec in enumerate(codecs):
            path = Path(folder) / f"{codec}.safetensors"
            save = statistics.median(_seconds(partial(host.save_kv, kept, path, codec)) for _ in range(3))
            size, stored = path.stat().st_size, DecodeRow(query, host.load_kv(path))
            kl = _divergence(host, DecodeRow(query, kept), stored)
            for m, tier in enumerate(("disk", "host")):
                loads, raws = [], []
                for _ in range(_TIMES):  # in turn, so that both meet the same disk
                    raws.append(raw_read(path, cold=tier == "disk"))
                    if tier == "disk":
                        drop_from_page_cache(path)
                    loads.append(_seconds(partial(_load, host, path)))
                load, raw = statistics.median(loads), statistics.median(raws)
                rows.append(
                    {
                        "tier": tier,
                        "codec": codec,
                        "bytes": size,
                        "mb_s": size / load / 1e6,
                        "raw_mb_s": size / raw / 1e6,
                        "share_of_raw": raw / load,
                        "save_mb_s": size / save / 1e6,
                        "fidelity_kl": kl,
                    }
                )
                show("kv-io", 2 * n + m + 1, 2 * len(codecs))
    return {"model": host.describe(), "tokens": tokens, "bytes": kept.bytes, "fork_ms": fork_ms, "rows": rows}


def _load(host: Host, path: Path) -> None:
    for layer in host.load_kv(path).layers:
        assert layer


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def raw_read(path: Path, cold: bool) -> float:
    """Seconds to read the file into new memory, in one call; `cold`: not from the page cache."""
    if cold:
        drop_from_page_cache(path)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as f:
        f.read()
    return time.perf_counter() - began


@torch.inference_mode()
def _divergence(host: Host, true: DecodeRow, near: DecodeRow) -> float:
    """Nats from the next token's distribution after `true` to that after `near`."""
    inputs = (prefill_inputs(host.model, [row], host.decoder.pad)[0] for row in (true, near))
    last = (forward(host.model, row, 1).logits[0, -1].double() for row in inputs)
    p, q = (torch.log_softmax(logits, -1) for logits in last)
    return float((p.exp() * (p - q)).sum().clamp_min(0))
