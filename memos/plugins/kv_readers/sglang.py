"""KV files as a storage of SGLang's hierarchical cache: `--hicache-storage-backend dynamic`, on its `HiCacheStorage`.

    --hicache-storage-backend-extra-config '{"backend_name": "memos", "class_name": "MemosHiCache",
        "module_path": "memos.plugins.kv_readers.sglang", "folder": "/dev/shm/kv", "page_tokens": 64}'

page_tokens is SGLang's --page-size; the host pool has its layout `layer_first`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig
from sglang.srt.mem_cache.utils import get_hash_str

from memos.errors import InputError
from memos.plugins.kv_readers.folder import KVFolder, PageKey
from memos.plugins.vllm.identity import identity_of


def keys_of(ids: Sequence[int], page_tokens: int) -> list[PageKey]:
    """The pages of a text, by SGLang's own chain of hashes; what is left at its end has none."""
    out, prior = list[PageKey](), None
    for first in range(0, len(ids) - page_tokens + 1, page_tokens):
        prior = get_hash_str(list(ids[first : first + page_tokens]), prior)
        out.append(PageKey(prior, first, first + page_tokens))
    return out


class MemosHiCache(HiCacheStorage):
    """SGLang makes one a process."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any] | None = None) -> None:
        """Raises InputError for a layout that is not ours, and what loading the model raises."""
        given = storage_config.extra_config or {}
        if storage_config.tp_size * storage_config.pp_size != 1 or storage_config.is_mla_model:
            raise InputError("KV files have all heads of all layers; memos' storage serves SGLang on one GPU, no MLA")
        if storage_config.is_page_first_layout:
            raise InputError("set --hicache-mem-layout to layer_first for memos' storage")
        if missing := [name for name in ("folder", "page_tokens") if name not in given]:
            raise InputError(f"--hicache-storage-backend-extra-config lacks {' and '.join(missing)}")
        identity = identity_of(str(storage_config.model_name), str(given.get("dtype", "auto")), False)
        tokens = int(given["page_tokens"])
        self._kv = KVFolder(Path(given["folder"]), identity, lambda ids: keys_of(ids, tokens))

    def get(
        self, key: str, target_location: torch.Tensor | None = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        page = self._kv.page(key)
        if page is None or target_location is None:
            return page
        if (page.numel(), page.dtype) != (target_location.numel(), target_location.dtype):
            return None
        target_location.view(-1).copy_(page.reshape(-1))
        return target_location

    def batch_get(
        self, keys: list[str], target_locations: list[torch.Tensor] | None = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        places: Sequence[torch.Tensor | None] = target_locations or [None] * len(keys)
        return [self.get(key, place) for key, place in zip(keys, places, strict=True)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        if value is None:
            return False
        if not self._kv.has(key):
            pool = self.mem_pool_host  # whose flat pages these are
            self._kv.put(key, value.view(2, pool.layer_num, -1, pool.head_num, pool.head_dim))
        return True

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        return all(self.set(key, value) for key, value in zip(keys, values or [None] * len(keys), strict=True))

    def exists(self, key: str) -> bool:
        return self._kv.has(key)
