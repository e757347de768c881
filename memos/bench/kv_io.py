"""`memos bench kv-io`: compares fork, save and load of a KV cache with a raw read of the same bytes.

With `--blobs URL`, also from a bucket, as a vault loads it that has no copy here, with what obstore alone takes to get
the same object into memory.
"""

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

from memos.cube import Blob, new_id
from memos.infrastructure.host.forward import forward
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import encode
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.host.model.decode import DecodeRow, prefill_inputs
from memos.infrastructure.host.model.measure import drop_from_page_cache
from memos.infrastructure.vault.blobs.vault_files import remove
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.object_storage.object_shelf import ObjectShelf
from memos.plugins.progress import Show

_TIMES = 5


def bench_kv_io(host: Host, tokens: int, seed: int, show: Show, blobs: str | None = None) -> dict[str, Any]:
    """Medians. tier disk: not in the page cache; tier host: in it; tier bucket: not on this machine. share_of_raw: of a
    plain read of the same bytes into new memory.

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
            if blobs:
                rows.append({"codec": codec, "fidelity_kl": kl} | _from_bucket(host, path, blobs, Path(folder)))
    return {"model": host.describe(), "tokens": tokens, "bytes": kept.bytes, "fork_ms": fork_ms, "rows": rows}


def _from_bucket(host: Host, path: Path, url: str, folder: Path) -> dict[str, Any]:
    """Of a KV file that a new vault keeps in a bucket, under a prefix of its own, and deletes at the end."""
    import obstore

    with MemVault(folder / f"vault-{path.stem}", blobs=f"{url}/bench-{new_id()}") as vault:
        saves, loads, raws = [], [], []
        with vault.blobs.staging() as staged:
            staged.hardlink_to(path)
            began = time.perf_counter()
            sha256, size = vault.blobs.store(staged)
            saves.append(time.perf_counter() - began)
        blob = Blob(sha256=sha256, bytes=size, fingerprint="none")
        shelf = vault.blobs.shelf
        assert isinstance(shelf, ObjectShelf)
        client, key = shelf.object_of(sha256)
        for _ in range(_TIMES):
            raws.append(_seconds(lambda: obstore.get(client, key).bytes()))
            remove(vault.blobs.stored(blob))
            loads.append(_seconds(lambda: _load(host, vault.blobs.path(blob, verified=False))))
        vault.blobs.discard(sha256)
        vault.blobs.settle()
        shelf.leave_empty()
    load, raw = statistics.median(loads), statistics.median(raws)
    return {
        "tier": "bucket",
        "bytes": size,
        "mb_s": size / load / 1e6,
        "raw_mb_s": size / raw / 1e6,
        "share_of_raw": raw / load,
        "save_mb_s": size / saves[0] / 1e6,
    }


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
