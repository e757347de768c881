"""Measures what encryption costs: the same work in a vault with a key and in one without, in turn."""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from memos.cube import Blob, Form, Header, MemCube, Rights, Text, new_id
from memos.infrastructure.vault.mem_vault import MemVault

_ROUNDS, _KEY = 7, "MEMOS_BENCH_KEY"


def encryption_rows(folder: Path, cubes: int = 1000, mib: int = 64) -> list[dict[str, Any]]:
    """Rows {backend, op, batch, per_s, share_of_bare}: of an encrypted vault, each beside one that is not, made in
    `folder`; by the median times. per_s: cubes, openings, or MiB of a payload."""
    os.environ[_KEY] = secrets.token_hex(32)
    try:
        with MemVault(folder / "plain") as plain, MemVault(folder / "encrypted", key=f"env:{_KEY}") as encrypted:
            vaults = (plain, encrypted)
            rows = [_row("add", batch, batch, [partial(_add, v, batch, cubes) for v in vaults]) for batch in (1, 100)]
            rows.append(_row("point read", 1, 1, [partial(_read, v, cubes) for v in vaults]))
            rows.append(_row("store MiB", 1, mib, [partial(_store, v, mib) for v in vaults]))
            blobs = [_stored(v, mib) for v in vaults]
            loads = [partial(_load, v, blob) for v, blob in zip(vaults, blobs, strict=True)]
            rows.append(_row("load MiB", 1, mib, loads))
        rows.append(_row("open", 1, 1, [partial(_open, folder / name) for name in ("plain", "encrypted")]))
        return rows
    finally:
        del os.environ[_KEY]


def _row(op: str, batch: int, amount: int, works: Sequence[Callable[[], list[float]]]) -> dict[str, Any]:
    """amount: of what is counted, in each time that a work tells."""
    seconds = [list[float](), list[float]()]
    for _ in range(_ROUNDS):
        for told, work in zip(seconds, works, strict=True):
            told += work()
    plain, encrypted = map(statistics.median, seconds)
    return {
        "backend": "sqlcipher",
        "op": op,
        "batch": batch,
        "per_s": amount / encrypted,
        "share_of_bare": plain / encrypted,
    }


def _timed(works: Iterable[Callable[[], object]]) -> list[float]:
    out = []
    for work in works:
        began = time.perf_counter()
        work()
        out.append(time.perf_counter() - began)
    return out


def _cube(n: int) -> MemCube:
    header = Header(created=datetime.now(timezone.utc))
    text = Text(text=f"Person {n} keeps {n % 7} boats in harbour {n % 97} since last spring.")
    return MemCube(id=new_id(), form=Form.PLAINTEXT, rights=Rights(owner="user"), header=header, payload=text)


def _add(vault: MemVault, batch: int, cubes: int) -> list[float]:
    def add(new: list[MemCube]) -> None:
        with vault.transaction():
            for cube in new:
                vault.put(cube)

    made = [_cube(n) for n in range(cubes // _ROUNDS if batch > 1 else cubes // 20)]
    return _timed(partial(add, made[at : at + batch]) for at in range(0, len(made), batch))


def _read(vault: MemVault, cubes: int) -> list[float]:
    """What was read once already."""
    ids = [cube.id for cube in vault.cubes()][:cubes]
    reads = [partial(vault.get, ids[n * 7919 % len(ids)]) for n in range(cubes)]
    _timed(reads)
    return _timed(reads)


def _stored(vault: MemVault, mib: int) -> Blob:
    with vault.blobs.staging() as staged:
        staged.write_bytes(os.urandom(mib << 20))
        sha256, size = vault.blobs.store(staged)
    return Blob(sha256=sha256, bytes=size, fingerprint="none")


def _store(vault: MemVault, mib: int) -> list[float]:
    with vault.blobs.staging() as staged:
        staged.write_bytes(os.urandom(mib << 20))
        began = time.perf_counter()
        sha256, _ = vault.blobs.store(staged)
        took = time.perf_counter() - began
    vault.blobs.discard(sha256)
    return [took]


def _load(vault: MemVault, blob: Blob) -> list[float]:
    """As KV is loaded, whose reader checks it; from the page cache."""
    took = _timed([lambda: vault.blobs.path(blob, verified=False).read_bytes()])
    vault.blobs.forget_lent(blob)
    return took


def _open(path: Path) -> list[float]:
    return _timed([lambda: MemVault(path).close()])
