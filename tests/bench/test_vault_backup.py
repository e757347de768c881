"""The figures of a backup are those of a vault that was backed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos.bench.vault_backup import backup_rows, fill
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.stores import Place
from memos.plugins.care import check as vault_check

pytestmark = pytest.mark.sqlite


def test_rows_hold_each_rate_against_the_raw_copy(tmp_path: Path) -> None:
    rows = {row["op"]: row for row in backup_rows(40, 2, 50_000, repeats=1, folder=tmp_path)}
    assert rows.keys() == {"backup", "restore", "check"}
    raw = rows["backup"]["per_s"] / rows["backup"]["share_of_bare"]
    for row in rows.values():
        assert row["batch"] == 40 and row["per_s"] > 0
        assert row["per_s"] / row["share_of_bare"] == pytest.approx(raw)
    assert not list(tmp_path.iterdir())


def test_what_is_measured_is_a_sound_vault_of_so_many_cubes(tmp_path: Path) -> None:
    fill(tmp_path, 30, 2, 10_000)
    with MemVault(tmp_path) as vault:
        told = vault.stats.all()
    assert told["cubes"] == {"plaintext": {"generated": 30}, "activation": {"generated": 2}}
    assert told["quotas"]["blob_bytes"]["used"] == 20_000 and vault_check.problems(Place(tmp_path)) == []
