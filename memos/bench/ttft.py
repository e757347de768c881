"""`memos bench ttft`: measures the time to the first token over text, transformers' reuse, and memos' KV."""

from __future__ import annotations

import copy
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from memos.config import DecodeConfig
from memos.errors import InputError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.model.decode import DecodeRow, ModelAnswer, now
from memos.plugins.progress import Show

CONTEXTS, QUERIES = (583, 2773, 6064), (953, 303, 167)  # tokens, as MemOS's table has them (2507.03724)
COMPARED = 16  # tokens: of greedy answers, and last ones of the query, that are held against those of the full prompt
_ONE, _SOME = DecodeConfig(max_new_tokens=1), DecodeConfig(max_new_tokens=COMPARED)
Ids = Callable[[int], tuple[int, ...]]  # so many tokens


def bench_ttft(
    host: Host,
    contexts: Sequence[int],
    queries: Sequence[int],
    repeats: int,
    seed: int,
    show: Show,
    memory: Ids | None = None,
    question: Ids | None = None,
) -> dict[str, Any]:
    """A row for each context, query and tier, in milliseconds (medians); loading and transfer are counted in ours.

    full: the whole prompt; reuse: the cache copied and handed to `generate`, as transformers documents it; floor: a
    forward of the query alone over a cache that is there; build: making the cache; break_even: uses after which
    building has paid, null where none does. equal: whether the greedy answer over the cache is that to the full prompt,
    and max_logit_diff: how far their logits are apart, over the last tokens of the query. left_out: what the model's
    context has no room for.

    memory, question: where tokens come from; without, they are drawn at random.
    """
    rng, rows, left_out = random.Random(seed), list[dict[str, Any]](), list[dict[str, int]]()

    def drawn(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(10, 2000) for _ in range(count))

    with tempfile.TemporaryDirectory() as folder:
        for n, context in enumerate(contexts):
            fitting = [query for query in queries if _fits(host, context + query)]
            left_out += [{"context": context, "query": query} for query in queries if query not in fitting]
            if not fitting:
                continue
            ids = (memory or drawn)(context)
            began = time.perf_counter()
            kept = encode(host.model, ids)
            build = time.perf_counter() - began
            path = Path(folder) / f"{context}.safetensors"
            host.save_kv(kept, path)
            for m, query in enumerate(fitting):
                rows += _rows(host, kept, path, (question or drawn)(query), build, repeats)
                show("ttft", n * len(queries) + m + 1, len(contexts) * len(queries))
    if not rows:
        raise InputError(
            f"{host.config.path} reads {host.context:,} tokens, and no context with a query fits in; "
            "give shorter ones, or another model"
        )
    return {"model": host.describe(), "rows": rows, "left_out": left_out}


def _fits(host: Host, tokens: int) -> bool:
    return host.context is None or tokens + COMPARED <= host.context


def running(host: Host, texts: Sequence[str]) -> Ids:
    """Tokens of texts, one below the other and from the beginning again where they end. Raises InputError."""
    lines = [host.tokenizer(f"{text}\n", add_special_tokens=False).input_ids for text in texts]
    spelled = list(chain.from_iterable(lines))
    if not spelled:
        raise InputError("the data has no text to measure on; give a file with turns and questions")
    return lambda count: tuple(spelled[n % len(spelled)] for n in range(count))


def _rows(
    host: Host, kept: Activation, path: Path, ids: tuple[int, ...], build: float, repeats: int
) -> list[dict[str, Any]]:
    def answer(past: Callable[[], Activation | None], decode: DecodeConfig) -> ModelAnswer:
        began = time.perf_counter()
        held = past()
        row = DecodeRow(ids, held) if held else DecodeRow(kept.ids + ids)
        return host.decoder.complete(host.model, [row], decode, began)[0]

    def first_token(past: Callable[[], Activation | None]) -> float:
        return answer(past, _ONE).ttft_s

    def median(seconds: Callable[[], float]) -> float:
        seconds()  # warm
        return statistics.median(seconds() for _ in range(repeats))

    device = host.model.device
    whole = answer(lambda: None, _SOME)
    # once on a CPU: it takes longest, and varies least
    full = whole.ttft_s if device.type == "cpu" else median(lambda: first_token(lambda: None))
    logits = last_logits(host.model, None, kept.ids + ids)
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
        over_kv = last_logits(host.model, past(), ids)
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
                "equal": answer(past, _SOME).ids == whole.ids,
                "max_logit_diff": float((over_kv - logits[-len(over_kv) :]).abs().max()),
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


@torch.inference_mode()
def last_logits(model: PreTrainedModel, past: Activation | None, ids: Sequence[int]) -> torch.Tensor:
    """Logits at the last tokens, [tokens, vocabulary]."""
    start = len(past.ids) if past else 0
    row = torch.tensor([list(ids)], device=model.device)
    positions = torch.arange(start, start + len(ids), device=model.device)[None]
    cache = past.fork() if past else None
    kept = min(COMPARED, len(ids))
    out = model(input_ids=row, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=kept)
    return out.logits[0].float()
