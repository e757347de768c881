"""`memos bench vault`: compares durable adds, reads and backups with bare sqlite3 and a raw copy in the same run.
beside a raw copy, and an encrypted vault beside one that is not.

The bare program writes the same rows into the same tables, with the same indexes and triggers, and has its values ready
beforehand: WAL, synchronous FULL, a connection for each writer. So what is compared is what the vault adds to SQLite:
rows out of a cube, its checks, its turn among processes; and what it saves, as its writers share a sync.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from memos.bench.encryption import encryption_rows
from memos.bench.vault_backup import backup_rows
from memos.cube import Form, Header, MemCube, Namespace, Rights, Text, new_id
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.tables.cube_table import checksum, words
from memos.plugins.progress import Show

_ADDED = {1: 120, 100: 2000}  # memories in a transaction: memories of a round
# in turn: a call for each memory of a transaction
_CASES = (("add", 1, 1), ("add", 1, 4), ("add", 100, 1), ("add", 100, 4), ("add in turn", 100, 1))
_PRELOAD, _WORDS = 5000, 14
_BACKED_UP, _SEALED = 5000, 1000  # memories, at most, of a vault that is backed up, and of one that is encrypted
_PAYLOADS, _PAYLOAD = 4, 1 << 24  # of these, and bytes of one at most
_BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)
_VERSION = "INSERT INTO versions (id, version, json, at, digest) VALUES (?, 1, ?, ?, ?)"
_HEAD = """INSERT INTO heads (id, version, state, form, segment, user_id, expires, since, words, tags)
           VALUES (?, 1, 'generated', 'plaintext', '', ?, NULL, ?, ?, '')"""
_TRANSITION = "INSERT INTO transitions (id, state, at, why, digest) VALUES (?, 'generated', ?, 'created', ?)"
_READ = "SELECT v.json FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version WHERE h.id = ?"


def bench_vault(cubes: int, rounds: int, reads: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each number of memories in a transaction and each number of threads that write, into a vault of
    `cubes`: memories in a second (medians of the rounds), and the share of what bare sqlite3 reaches (the median of the
    shares in each round, as the two take turns). read_us_p50: a memory by its id, with its parsing. And smaller vaults:
    backed up, restored and checked in bytes a second, beside a raw copy; encrypted (backend "sqlcipher"), beside one
    that is not, where the packages are there."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path, bare = Path(folder) / "vault", Path(folder) / "bare.db"
        ids = list[str]()
        with MemVault(path) as vault:
            for start in range(0, cubes, _PRELOAD):
                made = drawn(rng, min(_PRELOAD, cubes - start))
                vault.put(*made)
                ids += [cube.id for cube in made]
                show("keep", len(ids), cubes)
        shutil.copy(path / "vault.db", bare)
        with MemVault(path) as vault:
            read = _read(vault, bare, [rng.choice(ids) for _ in range(reads)])
            rows = list[dict[str, Any]]()
            for op, batch, writers in _CASES:
                rows.append(_added(vault, bare, op, batch, writers, rounds, rng))
                show("add", len(rows), len(_CASES))
        others = list(_others(Path(folder), cubes))
    return {"cubes": cubes, "rounds": rounds, "rows": [*rows, read, *others], "read_us_p50": 1e6 / read["per_s"]}


def _others(folder: Path, cubes: int) -> Iterator[dict[str, Any]]:
    payload = min(_PAYLOAD, 160 * cubes)
    rows = backup_rows(min(cubes, _BACKED_UP), _PAYLOADS, payload, folder=folder)
    if all(map(find_spec, ("cryptography", "sqlcipher3"))):
        rows += encryption_rows(folder, min(cubes, _SEALED), max(1, payload >> 20))
    for row in rows:
        yield row | {"threads": 1, "bare_per_s": row["per_s"] / row["share_of_bare"]}


def drawn(rng: random.Random, count: int) -> list[MemCube]:
    """Memories of 14 words."""
    return [
        MemCube(
            id=new_id(),
            form=Form.PLAINTEXT,
            namespace=Namespace(user_id=f"user{n % 1000}"),
            rights=Rights(owner=f"user{n % 1000}"),
            header=Header(created=_BEGAN + timedelta(minutes=n), kind="event"),
            payload=Text(text=" ".join(f"w{rng.randrange(30_000)}" for _ in range(_WORDS))),
        )
        for n in range(count)
    ]


def _added(
    vault: MemVault, bare: Path, op: str, batch: int, writers: int, rounds: int, rng: random.Random
) -> dict[str, Any]:
    count, put = _ADDED[batch], _put if op == "add" else _put_in_turn
    ours, theirs = list[float](), list[float]()
    for n in range(rounds + 1):
        shares = [drawn(rng, count // writers) for _ in range(2 * writers)]
        turns: list[tuple[list[float], Sequence[Callable[[], object]]]] = [
            (ours, [partial(put, vault, share, batch) for share in shares[:writers]]),
            (theirs, [_Bare(bare, share, batch) for share in shares[writers:]]),
        ]
        for took, work in turns if n % 2 else reversed(turns):
            took.append(_seconds(work) / count)
    ours, theirs = ours[1:], theirs[1:]  # the first fills caches
    share = median(bare_s / our_s for our_s, bare_s in zip(ours, theirs, strict=True))
    return _row(op, batch, writers, median(ours), median(theirs)) | {"share_of_bare": share}


def _put(vault: MemVault, cubes: Sequence[MemCube], batch: int) -> None:
    for start in range(0, len(cubes), batch):
        vault.put(*cubes[start : start + batch])


def _put_in_turn(vault: MemVault, cubes: Sequence[MemCube], batch: int) -> None:
    for start in range(0, len(cubes), batch):
        with vault.transaction():
            for cube in cubes[start : start + batch]:
                vault.put(cube)


class _Bare:
    """The same rows through sqlite3, each statement for a whole batch."""

    def __init__(self, file: Path, cubes: Sequence[MemCube], batch: int) -> None:
        self._db = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        for pragma in ("synchronous = FULL", "secure_delete = ON", "foreign_keys = ON", "recursive_triggers = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        self._batches = [[_values(cube) for cube in cubes[n : n + batch]] for n in range(0, len(cubes), batch)]

    def __call__(self) -> None:
        with closing(self._db) as db:
            for rows in self._batches:
                db.execute("BEGIN IMMEDIATE")
                for n, sql in enumerate((_VERSION, _HEAD, _TRANSITION)):
                    db.executemany(sql, [row[n] for row in rows])
                db.execute("UPDATE clock SET at = ?", rows[-1][2][1:2])
                db.execute("COMMIT")


def _values(cube: MemCube) -> tuple[tuple[str, ...], ...]:
    """Of a version, a head and a move."""
    at = datetime.now(timezone.utc).isoformat()
    content = cube.model_dump_json(exclude={"state", "usage"})
    version = (cube.id, content, at, checksum(cube.id, 1, content, at))
    head = (cube.id, cube.namespace.user_id, at, words(cube.text))
    return version, head, (cube.id, at, checksum(cube.id, "generated", at, "created"))


def _read(vault: MemVault, bare: Path, ids: Sequence[str]) -> dict[str, Any]:
    ours, theirs = list[float](), list[float]()
    with closing(sqlite3.connect(bare, isolation_level=None)) as db:
        for id in ids:
            ours.append(_seconds([partial(vault.get, id)]))
            theirs.append(_seconds([partial(_fetch, db, id)]))
    row = _row("read", 1, 1, median(ours), median(theirs))
    return row | {"share_of_bare": row["per_s"] / row["bare_per_s"]}


def _fetch(db: sqlite3.Connection, id: str) -> object:
    return db.execute(_READ, (id,)).fetchone()


def _row(op: str, batch: int, threads: int, our_s: float, bare_s: float) -> dict[str, Any]:
    told = {"backend": "sqlite", "op": op, "batch": batch, "threads": threads}
    return told | {"per_s": 1 / our_s, "bare_per_s": 1 / bare_s}


def _seconds(work: Sequence[Callable[[], object]]) -> float:
    """Until all of it is done, each piece in a thread of its own where there are several."""
    if len(work) == 1:
        began = time.perf_counter()
        work[0]()
        return time.perf_counter() - began
    threads = [threading.Thread(target=piece) for piece in work]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began
