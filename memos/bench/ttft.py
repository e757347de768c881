"""`memos bench ttft`: measures the time to the first token over text, transformers' reuse, and memos' KV."""

from __future__ import annotations

import copy
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from memos.config import DecodeConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.model.decode import DecodeRow, now
from memos.interface.doors.progress import Show

CONTEXTS, QUERIES = (583, 2773, 6064), (953, 303, 167)  # tokens, as MemOS's table has them (2507.03724)
_ONE = DecodeConfig(max_new_tokens=1)


def bench_ttft(
    host: Host,
    contexts: Sequence[int],
    queries: Sequence[int],
    repeats: int,
    seed: int,
    show: Show,
) -> dict[str, Any]:
    """A row for each context, query and tier, in milliseconds (medians); loading and transfer are counted in ours.

    full: the whole prompt; reuse: the cache copied and handed to `generate`, as transformers documents it; floor: a
    forward of the query alone over a cache that is there; build: making the cache; break_even: uses after which
    building has paid, null where none does.
    """
    rng, rows = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder:
        for n, context in enumerate(contexts):
            memory = tuple(rng.randrange(10, 2000) for _ in range(context))
            began = time.perf_counter()
            kept = encode(host.model, memory)
            build = time.perf_counter() - began
            path = Path(folder) / f"{context}.safetensors"
            host.save_kv(kept, path)
            for m, query in enumerate(queries):
                ids = tuple(rng.randrange(10, 2000) for _ in range(query))
                rows += _rows(host, kept, path, ids, build, repeats)
                show("ttft", n * len(queries) + m + 1, len(contexts) * len(queries))
    return {"model": host.describe(), "rows": rows}


def _rows(
    host: Host, kept: Activation, path: Path, ids: tuple[int, ...], build: float, repeats: int
) -> list[dict[str, Any]]:
    def first_token(past: Callable[[], Activation | None]) -> float:
        began = time.perf_counter()
        held = past()
        row = DecodeRow(ids, held) if held else DecodeRow(kept.ids + ids)
        return host.decoder.complete(host.model, [row], _ONE, began)[0].ttft_s

    def median(seconds: Callable[[], float]) -> float:
        seconds()  # warm
        return statistics.median(seconds() for _ in range(repeats))

    device = host.model.device
    # once on a CPU: it takes longest, and varies least
    full = first_token(lambda: None) if device.type == "cpu" else median(lambda: first_token(lambda: None))
    reuse = median(lambda: reuse_by_transformers(host.model, kept, ids))
    floor = median(lambda: forward_over(host.model, kept, ids))
    on_host = kept.on("cpu")
    tiers: dict[str, Callable[[], Activation]] = {
        "host": lambda: on_host.on(device),
        "disk": lambda: host.load_kv(path),
    }
    if device.type != "cpu":
        tiers = {"device": lambda: kept, **tiers}
    out = []
    for tier, past in tiers.items():
        ours = median(partial(first_token, past))
        out.append(
            {
                "context": len(kept.ids),
                "query": len(ids),
                "tier": tier,
                "full_ms": full * 1e3,
                "reuse_ms": reuse * 1e3,
                "floor_ms": floor * 1e3,
                "ours_ms": ours * 1e3,
                "build_ms": build * 1e3,
                "bytes": kept.bytes,
                "saved": 1 - ours / full,
                "break_even": build / (full - ours) if full > ours else None,
            }
        )
    return out


@torch.inference_mode()
def reuse_by_transformers(model: PreTrainedModel, kept: Activation, ids: Sequence[int]) -> float:
    """Seconds to the first token as transformers' documentation reuses a prefix: copy the cache, then generate."""
    began, cache = time.perf_counter(), kept.fork()
    row = torch.tensor([[*kept.ids, *ids]], device=model.device)
    generate: Any = model.generate
    generate(
        row,
        attention_mask=torch.ones_like(row),
        past_key_values=copy.deepcopy(cache),
        max_new_tokens=1,
        do_sample=False,
        pad_token_id=0,
    )
    return now(model) - began


@torch.inference_mode()
def forward_over(model: PreTrainedModel, kept: Activation, ids: Sequence[int]) -> float:
    """Seconds of one forward of `ids` over a cache that is there: what no reuse can be faster than."""
    cache, n = kept.fork(), len(kept.ids)
    row = torch.tensor([list(ids)], device=model.device)
    positions = torch.arange(n, n + len(ids), device=model.device)[None]
    began = now(model)
    model(input_ids=row, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return now(model) - began
