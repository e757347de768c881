"""KV files as a storage of LMCache, on its `StoragePluginInterface`.

storage_plugins: [memos]
extra_config:
  storage_plugin.memos.module_path: memos.plugins.kv_readers.lmcache
  storage_plugin.memos.class_name: MemosStorage
  memos.folder: /dev/shm/kv
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface
from lmcache.v1.token_database import ChunkedTokenDatabase

from memos.errors import InputError
from memos.plugins.kv_readers.folder import KVFolder, PageKey
from memos.plugins.vllm.identity import identity_of

if TYPE_CHECKING:
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend import LocalCPUBackend


class MemosStorage(StoragePluginInterface):
    """LMCache makes one a worker. What it stores is written at once."""

    def __init__(
        self,
        dst_device: str = "cpu",
        config: LMCacheEngineConfig | None = None,
        metadata: LMCacheMetadata | None = None,
        local_cpu_backend: LocalCPUBackend | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Raises InputError where a setting is missing or its layout is not ours, and what loading the model raises."""
        super().__init__(dst_device, config, metadata, local_cpu_backend, loop)
        if config is None or metadata is None or "memos.folder" not in (config.extra_config or {}):
            raise InputError("LMCache's extra_config lacks memos.folder, where KV files lie")
        if metadata.world_size != 1 or metadata.use_mla:
            raise InputError("KV files have all heads of all layers; memos' storage serves LMCache on one GPU, no MLA")
        self._database, self._metadata = ChunkedTokenDatabase(config, metadata), metadata
        dtype = str(metadata.kv_dtype).removeprefix("torch.")
        identity = identity_of(metadata.model_name, dtype, False)
        self._kv = KVFolder(Path(config.extra_config["memos.folder"]), identity, self.keys_of)

    def keys_of(self, ids: Sequence[int]) -> list[PageKey]:
        """The chunks of a text, by LMCache's own hashes; with save_unfull_chunk the last is shorter."""
        found = self._database.process_tokens(tokens=list(ids))
        return [PageKey(key.to_string(), first, end) for first, end, key in found]

    def contains(self, key: CacheEngineKey, pin: bool = False) -> bool:
        return self._kv.has(key.to_string())

    def get_blocking(self, key: CacheEngineKey) -> MemoryObj | None:
        page = self._kv.page(key.to_string())
        if page is None:
            return None
        chunk = page.flatten(3)  # [2, layers, tokens, hidden]
        assert self.local_cpu_backend is not None
        memory = self.local_cpu_backend.allocate(chunk.shape, chunk.dtype, MemoryFormat.KV_2LTD)
        if memory is not None:
            memory.tensor.copy_(chunk)
        return memory

    def batched_submit_put_task(
        self,
        keys: Sequence[CacheEngineKey],
        objs: list[MemoryObj],
        transfer_spec: Any = None,
        on_complete_callback: Callable[[CacheEngineKey], None] | None = None,
    ) -> list[Future[None]] | None:
        heads, width = self._metadata.kv_shape[3:]
        for key, memory in zip(keys, objs, strict=True):
            tensor: torch.Tensor = memory.tensor
            if not self.contains(key):
                self._kv.put(key.to_string(), tensor.unflatten(3, (heads, width)))
            if on_complete_callback:
                on_complete_callback(key)
        return None

    def exists_in_put_tasks(self, key: CacheEngineKey) -> bool:
        return False  # what is put is there when the call returns

    def pin(self, key: CacheEngineKey) -> bool:
        return self.contains(key)  # nothing is evicted here

    def unpin(self, key: CacheEngineKey) -> bool:
        return self.contains(key)

    def remove(self, key: CacheEngineKey, force: bool = True) -> bool:
        return self._kv.drop(key.to_string())

    def get_allocator_backend(self) -> LocalCPUBackend | None:
        return self.local_cpu_backend

    def touch_cache(self) -> None: ...

    def close(self) -> None: ...
