"""Conformance with LMCache and SGLang themselves, where they are installed (`scripts/test-readers`): the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.model.load import model_path

PAGE = 8


@dataclass(frozen=True)
class HostPool:
    """What SGLang's host pool says of its pages."""

    layer_num: int
    head_num: int
    head_dim: int


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


@pytest.fixture(scope="module")
def kv(host: Host) -> Activation:
    return host.encode(["Mira lives in Lisbon.", "Tom is a nurse.", "Anna has a cat."])


def test_sglang_reads_and_stores_pages(host: Host, kv: Activation, tmp_path: Path) -> None:
    storage = pytest.importorskip("sglang.srt.mem_cache.hicache_storage", reason="SGLang is not installed")
    from memos.plugins.kv_readers.sglang import MemosHiCache, keys_of

    def config(folder: Path) -> object:
        given = {"folder": str(folder), "page_tokens": PAGE, "dtype": "float32", "file_storage_path": str(folder)}
        path = model_path("memos-small")
        ranks = dict.fromkeys(("tp_rank", "pp_rank", "attn_cp_rank"), 0) | dict.fromkeys(
            ("tp_size", "pp_size", "attn_cp_size"), 1
        )
        flags = dict.fromkeys(("is_mla_model", "enable_storage_metrics", "is_page_first_layout"), False)
        return storage.HiCacheStorageConfig(**ranks, **flags, model_name=path, extra_config=given)

    host.save_kv(kv, tmp_path / "one.safetensors")
    ours, pages = MemosHiCache(config(tmp_path)), keys_of(kv.ids, PAGE)
    names = [page.key for page in pages]
    assert len(pages) == len(kv.ids) // PAGE and ours.batch_exists([*names, "f" * 64]) == len(names)
    # SGLang's host pool, layer_first: [2, layers, tokens, heads, head_dim]
    heads, width = kv.layers[0][0].shape[1], kv.layers[0][0].shape[3]
    pool = torch.stack([torch.stack([t[0].transpose(0, 1) for t in layer]) for layer in kv.layers], 1)
    places = [torch.zeros(2 * len(kv.layers) * PAGE * heads * width) for _ in names]
    got = ours.batch_get(names, places)
    for page, place, returned in zip(pages, places, got, strict=True):
        assert returned is place and torch.equal(place, pool[:, :, page.first : page.end].flatten())
    # what SGLang's own file storage keeps of the same pages has the same bytes
    theirs = storage.HiCacheFile(config(tmp_path / "theirs"))
    assert theirs.batch_set(names, places)
    for name, place in zip(names, places, strict=True):
        [file] = (tmp_path / "theirs").glob(f"{name}*.bin")
        assert file.read_bytes() == place.numpy().tobytes()
    # and what SGLang stores here is KV of ours again
    back = MemosHiCache(config(tmp_path / "back"))
    back.register_mem_pool_host(HostPool(len(kv.layers), heads, width))
    assert back.batch_set(names, places)
    assert back.set(names[0], None) is False and back.exists(names[0])
    prefix = back._kv.prefix(kv.ids)
    assert prefix.digest() == kv.upto(len(names) * PAGE).digest()


def test_lmcache_reads_and_stores_chunks(host: Host, kv: Activation, tmp_path: Path) -> None:
    pytest.importorskip("lmcache.v1.token_database", reason="LMCache is not installed")
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

    from memos.plugins.kv_readers.lmcache import MemosStorage

    heads, width = kv.layers[0][0].shape[1], kv.layers[0][0].shape[3]

    def storage(folder: Path) -> MemosStorage:
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=PAGE, local_cpu=True, max_local_cpu_size=0.1, extra_config={"memos.folder": str(folder)}
        )
        shape = (len(kv.layers), 2, PAGE, heads, width)
        metadata = LMCacheMetadata(model_path("memos-small"), 1, 1, 0, 0, torch.float32, shape, chunk_size=PAGE)
        return MemosStorage("cpu", config, metadata, LocalCPUBackend(config, metadata, "cpu"))

    host.save_kv(kv, tmp_path / "one.safetensors")
    ours, back = storage(tmp_path), storage(tmp_path / "back")
    found = [(first, end, key) for first, end, key in ours._database.process_tokens(tokens=list(kv.ids))]
    keys = [key for *_, key in found]
    assert ours.batched_contains(keys) == len(keys) == len(kv.ids) // PAGE
    # KV_2LTD: [2, layers, tokens, heads * head_dim]
    whole = torch.stack([torch.stack([t[0].transpose(0, 1).flatten(1) for t in layer]) for layer in kv.layers], 1)
    objects = ours.batched_get_blocking(keys)
    for (first, end, _), memory in zip(found, objects, strict=True):
        assert memory.metadata.fmt == MemoryFormat.KV_2LTD and torch.equal(memory.tensor, whole[:, :, first:end])
    done = list[object]()
    back.batched_submit_put_task(keys, objects, on_complete_callback=done.append)
    assert done == keys and back.batched_contains(keys) == len(keys)
    assert back._kv.prefix(kv.ids).digest() == kv.upto(len(keys) * PAGE).digest()
    assert back.remove(keys[0]) and not back.contains(keys[0]) and back.get_blocking(keys[0]) is None
