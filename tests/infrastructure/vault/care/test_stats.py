"""What a vault holds is counted, and a write beyond what it may hold changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos.config import QuotaConfig
from memos.cube import Form, Text
from memos.errors import QuotaExceeded
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care.check import problems_of
from tests.plugins.care.test_check import fill, payload, text


@pytest.mark.sqlite
def test_what_a_vault_holds_is_counted(tmp_path: Path) -> None:
    with MemVault(tmp_path, QuotaConfig(cubes_per_user=70)) as vault:
        fill(vault)
        told = vault.stats.all()
        [kv] = vault.cubes(form=Form.ACTIVATION)
        [adapter] = vault.cubes(form=Form.PARAMETRIC)
    assert kv.blob and adapter.blob
    blobs = kv.blob.bytes + adapter.blob.bytes
    assert told["cubes"]["plaintext"] == {"activated": 5, "generated": 52}
    assert told["cubes"]["activation"] == told["cubes"]["parametric"] == {"generated": 1}
    assert told["versions"] == 57 + 5 + 2 and told["users"] == {"ada": 59} and told["jobs"] == {"running": 1}
    assert told["bytes"]["blobs"] == blobs == told["quotas"]["blob_bytes"]["used"]
    assert told["bytes"]["vectors.db"] + told["journals"]["vectors.db-wal"] > 50 * 64 * 4
    assert told["quotas"]["cubes_per_user"] == {"used": 59, "limit": 70}
    databases = sum(told["bytes"][name] for name in ("vault.db", "vectors.db", "index"))
    assert told["quotas"]["bytes"]["used"] == databases + sum(told["journals"].values()) + blobs


def test_a_user_keeps_as_many_cubes_as_allowed(tmp_path: Path) -> None:
    with MemVault(tmp_path, QuotaConfig(cubes_per_user=2)) as vault:
        first, _ = text(vault, "One."), text(vault, "Two.")
        change = vault.last_change()
        with pytest.raises(QuotaExceeded, match="user ada has 2 cubes, of 2 that vault.quota.cubes_per_user allows"):
            text(vault, "Three.")
        assert len(vault.cubes()) == 2 and vault.last_change() == change
        vault.put(first.model_copy(update={"version": 2, "payload": Text(text="One again.")}))  # is no more cubes
        vault.delete([first.id])
        text(vault, "Three.")


def test_payloads_take_as_much_as_allowed(tmp_path: Path) -> None:
    with MemVault(tmp_path, QuotaConfig(blob_bytes=1_500)) as vault:
        source = text(vault, "One.")
        first = payload(vault, Form.ACTIVATION, b"a" * 1_000, source)
        with pytest.raises(
            QuotaExceeded, match="holds 1000 bytes, 1000 more would pass the 1500 of vault.quota.blob_b"
        ):
            payload(vault, Form.ACTIVATION, b"b" * 1_000, source)
        assert len(list((tmp_path / "blobs").glob("*/*"))) == 1
        payload(vault, Form.ACTIVATION, b"a" * 1_000, source)  # is there already
        vault.delete([cube.id for cube in vault.cubes(form=Form.ACTIVATION)])
        assert first.blob and not list((tmp_path / "blobs").glob("*/*"))
        payload(vault, Form.ACTIVATION, b"b" * 1_000, source)


def test_a_vault_takes_as_much_as_allowed(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        text(vault, "One.")
        used = vault.stats.all()["quotas"]["bytes"]["used"]
    with MemVault(tmp_path, QuotaConfig(bytes=used + 200_000)) as vault:
        text(vault, "Two.")
        with pytest.raises(QuotaExceeded, match="vault.quota.bytes"):
            for i in range(1_000):
                text(vault, f"It is number {i}. " * 50)
        known = len(vault.cubes())
        assert 1 < known < 1_000 and problems_of(vault) == []
        with pytest.raises(QuotaExceeded, match="vault.quota.bytes"):
            payload(vault, Form.ACTIVATION, b"b" * 300_000, vault.cubes()[0])
        assert len(vault.cubes()) == known


def test_a_payload_of_two_cubes_goes_with_the_last(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        source = text(vault, "One.")
        one = payload(vault, Form.ACTIVATION, b"a" * 1_000, source)
        two = payload(vault, Form.ACTIVATION, b"a" * 1_000, source)
        assert vault.stats.all()["quotas"]["blob_bytes"]["used"] == 1_000
        vault.delete([one.id])
        assert len(list((tmp_path / "blobs").glob("*/*"))) == 1
        vault.delete([two.id])
        assert not list((tmp_path / "blobs").glob("*/*"))


@pytest.mark.sqlite
def test_compacting_gives_space_back_and_changes_nothing_else(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        fill(vault)
        cubes = vault.cubes()
        with vault.blobs.staging() as path:
            path.write_bytes(b"an orphan")
            vault.blobs.store(path)
        before, after = vault.compact()
        assert after < before and problems_of(vault) == [] and vault.cubes() == cubes
        told = vault.stats.all()
        assert told["journals"] == {"vault.db-wal": 0, "vectors.db-wal": 0}
        assert told["bytes"]["blobs"] == told["quotas"]["blob_bytes"]["used"]
        assert vault.vectors.of("embedder", [cube.id for cube in cubes])
