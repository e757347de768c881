"""What memos is measured against: the same work by transformers alone, and the machine's own floor."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from memos.infrastructure.host.kv.kv import Activation
from memos.infrastructure.host.model.decode import now


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


def raw_read(path: Path, cold: bool) -> float:
    """Seconds to read the file into new memory, in one call; `cold`: not from the page cache."""
    if cold:
        forget(path)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as f:
        f.read()
    return time.perf_counter() - began


def forget(path: Path) -> None:
    """Drop the file from the page cache, where the system lets one."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
