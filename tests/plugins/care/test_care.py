"""A folder is looked after as what it is: a vault, or a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos.errors import VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care import care
from memos.plugins.care.check import problems_of
from tests.plugins.care.test_check import fill

pytestmark = pytest.mark.sqlite


def test_a_vault_goes_through_all_that_can_be_done_with_it(tmp_path: Path) -> None:
    folder, backup, again = tmp_path / "vault", tmp_path / "backup", tmp_path / "again"
    with MemVault(folder) as vault:
        fill(vault)
        cubes = vault.cubes()
        assert care.back_up(folder, backup).bytes == care.restore(backup, again).bytes  # while it is open elsewhere
        assert care.check(folder) == care.check(backup) == care.check(again) == []
    with care.opened(again) as vault:
        before, after = vault.compact()
        assert after <= before and vault.stats.all()["users"] == {"ada": len(cubes)}
    (again / "vectors.db").write_bytes(b"")
    assert "vectors.db" in care.check(again)[0]
    (again / "vectors.db").unlink()  # what it held is made anew
    with MemVault(again) as vault:
        assert problems_of(vault) == []
        assert vault.cubes() == cubes


def test_where_there_is_no_vault_none_is_made(tmp_path: Path) -> None:
    for act in (care.check, care.opened, lambda folder: care.back_up(folder, tmp_path / "backup")):
        with pytest.raises(VaultError, match="holds no vault"):
            act(tmp_path / "none")
    assert not list(tmp_path.iterdir())
