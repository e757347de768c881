"""Measures backing up and restoring a vault against a raw copy of the same bytes, each file synced."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from memos.cube import Blob, Form, Header, MemCube, Namespace, Rights, Source, Text, new_id
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.stores import Place
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.plugins.care import backup as vault_backup
from memos.plugins.care import check as vault_check

_WIDTH, _TOKENS = 384, 10  # of all-MiniLM-L6-v2, and of a sentence
_PIECE = 1 << 22  # bytes
_BATCH = 1000  # cubes


def backup_rows(
    cubes: int, blobs: int, blob_bytes: int, repeats: int = 3, folder: Path | None = None
) -> list[dict[str, Any]]:
    """Rows {"backend", "op", "batch", "per_s", "share_of_bare"} for a vault of so many texts with vectors, and so many
    payloads: "backup", "restore" and "check" in bytes a second, the best of so many, each beside the best raw copy.

    folder: on the disk to measure; None for a temporary one.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        fill(place / "vault", cubes, blobs, blob_bytes)
        taken: dict[str, list[float]] = {"bare": [], "backup": [], "restore": [], "check": []}
        size = 0
        for _ in range(repeats):
            with MemVault(place / "vault") as vault:
                taken["backup"].append(_timed(lambda vault=vault: vault_backup.back_up(vault.path, place / "backup")))  # type: ignore[misc]
            size = vault_backup.read(place / "backup").bytes
            taken["bare"].append(_timed(lambda: _raw_copy(place / "backup", place / "raw")))
            taken["restore"].append(_timed(lambda: vault_backup.restore(place / "backup", place / "again")))
            taken["check"].append(_timed(lambda: vault_check.problems(Place(place / "again"))))
            for one in ("backup", "raw", "again"):
                shutil.rmtree(place / one)
        bare = min(taken["bare"])
        return [
            {
                "backend": "sqlite",
                "op": op,
                "batch": cubes,
                "per_s": size / min(taken[op]),
                "share_of_bare": bare / min(taken[op]),
            }
            for op in ("backup", "restore", "check")
        ]


def fill(folder: Path, cubes: int, blobs: int, blob_bytes: int) -> None:
    """A vault of texts with random vectors, and payloads of random bytes."""
    chance = np.random.default_rng(0)
    with MemVault(folder) as vault:
        owner, last = Namespace(user_id="bench"), None
        for start in range(0, cubes, _BATCH):
            with vault.transaction():
                batch = []
                for i in range(start, min(start + _BATCH, cubes)):
                    last = MemCube(
                        id=new_id(),
                        form=Form.PLAINTEXT,
                        namespace=owner,
                        rights=Rights(owner="bench"),
                        header=Header(created=vault.now()),
                        payload=Text(
                            text=f"Person {i} lives in the city of number {i % 977}, and came there long ago."
                        ),
                    )
                    vault.put(last)
                    batch.append(last.id)
                vectors = chance.random((len(batch), _WIDTH), np.float32)
                tokens = chance.integers(-127, 127, (len(batch), _TOKENS, _WIDTH), np.int8)
                rows = (VectorRow(id, 1, "", v, t) for id, v, t in zip(batch, vectors, tokens, strict=True))
                vault.vectors.put("bench", rows)
        for _ in range(blobs if last else 0):
            assert last
            with vault.blobs.staging() as path:
                path.write_bytes(chance.bytes(blob_bytes))
                sha256, size = vault.blobs.store(path)
            source = (Source(id=last.id, version=1),)
            blob = Blob(sha256=sha256, bytes=size, fingerprint="bench")
            change = {"id": new_id(), "form": Form.ACTIVATION, "payload": blob, "sources": source}
            vault.put(last.model_copy(update=change))


def _raw_copy(source: Path, target: Path) -> None:
    """Each file read and written once, and synced."""
    for path in source.rglob("*"):
        if path.is_file():
            to = target / path.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb", buffering=0) as read, to.open("wb", buffering=0) as write:
                while piece := read.read(_PIECE):
                    write.write(piece)
                os.fsync(write.fileno())


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
