"""Which store a vault is kept in, and what happens where the plug-in that it needs is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos.errors import PluginError, VaultError
from memos.infrastructure.vault import stores
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.sqlite.plain_store import PLAIN_STORE
from memos.infrastructure.vault.stores import STORES, Place, is_vault, store_of
from memos.plugins.encryption.store import ENCRYPTED_STORE
from memos.plugins.postgres.store import POSTGRES_STORE

pytestmark = pytest.mark.sqlite


def test_a_folder_or_a_config_says_which_store(tmp_path: Path) -> None:
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / "key.json").touch()
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "server.json").touch()
    assert store_of(Place(tmp_path / "new")) is PLAIN_STORE
    assert store_of(Place(tmp_path / "new", key="env:KEY")) is store_of(Place(tmp_path / "sealed")) is ENCRYPTED_STORE
    assert store_of(Place(tmp_path / "new", url="postgresql:///x")) is POSTGRES_STORE
    assert store_of(Place(tmp_path / "served", key="env:KEY")) is POSTGRES_STORE  # which refuses the key
    assert is_vault(tmp_path / "served") and not is_vault(tmp_path / "sealed")


@pytest.mark.parametrize("place, extra", [({"key": "env:KEY"}, "encryption"), ({"url": "postgresql:///x"}, "postgres")])
@pytest.mark.parametrize("broken", [False, True])
def test_a_vault_that_needs_a_plug_in_is_not_taken_for_a_plain_one(
    place: dict[str, str], extra: str, broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str) -> object:
        raise PluginError(f"{name} fails to load")

    stores._kind.cache_clear()
    if broken:
        monkeypatch.setattr(STORES, "get", fails)
    else:
        monkeypatch.setattr(STORES, "names", lambda: ("sqlite",))
    with pytest.raises(VaultError, match=rf"pip install 'memos-kernel\[{extra}\]'"):
        MemVault(tmp_path / "vault", **place)
    with MemVault(tmp_path / "plain") as vault:  # which needs none of them
        assert vault.cubes() == []
