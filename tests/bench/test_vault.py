"""The benchmark of durable writes compares like with like."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memos.bench import vault as bench
from memos.infrastructure.vault.mem_vault import MemVault

pytestmark = pytest.mark.sqlite


@pytest.mark.parametrize("put", [bench._put, bench._put_in_turn])
@pytest.mark.parametrize("batch", [1, 4])
def test_bare_sqlite_writes_the_same_rows_as_durably(tmp_path: Path, batch: int, put: Callable[..., None]) -> None:
    cubes = bench.drawn(random.Random(0), 12)
    with MemVault(tmp_path / "vault"):
        pass
    shutil.copy(tmp_path / "vault" / "vault.db", tmp_path / "bare.db")
    with MemVault(tmp_path / "vault") as vault:
        put(vault, cubes, batch)
    work = bench._Bare(tmp_path / "bare.db", cubes, batch)
    assert [work._db.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")] == [
        ("wal",),
        (2,),
    ]
    work()
    tables = []
    for file in (tmp_path / "vault" / "vault.db", tmp_path / "bare.db"):
        with closing(sqlite3.connect(file)) as db:
            tables.append(
                [
                    db.execute("SELECT id, version, json FROM versions ORDER BY id").fetchall(),
                    db.execute(
                        """SELECT id, version, state, form, segment, user_id, expires, words, tags, repeats
                           FROM heads ORDER BY id"""
                    ).fetchall(),
                    db.execute("SELECT id, state, why FROM transitions ORDER BY id").fetchall(),
                    db.execute("SELECT id FROM changes ORDER BY id").fetchall(),
                    db.execute("SELECT n, deleted, at != '' FROM clock").fetchall(),
                ]
            )
    assert tables[0] == tables[1] and len(tables[0][0]) == 12


@pytest.mark.slow
def test_every_case_is_measured_beside_bare_sqlite() -> None:
    report = bench.bench_vault(300, 1, 20, 0, lambda *_: None)
    cases = [(row["op"], row["batch"], row["threads"]) for row in report["rows"]]
    assert cases[:9] == [*bench._CASES, ("read", 1, 1), *((op, 300, 1) for op in ("backup", "restore", "check"))]
    assert [row["backend"] for row in report["rows"]] == ["sqlite"] * 9 + ["sqlcipher"] * 6
    assert all(row["per_s"] > 0 < row["share_of_bare"] for row in report["rows"])
    assert report["read_us_p50"] > 0
