"""Two versions of memos on one vault: what runs goes on while a later version brings the tables up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memos import MemOS
from memos.config import AuditConfig, Config, GovernanceConfig, VaultConfig
from memos.errors import VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import schema
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION, UPGRADES
from memos.plugins.care.audit import verify_log
from memos.plugins.postgres.postgres_dialect import table_names

pytest.importorskip("psycopg")

# what a process that still runs does not notice
_ADDS = ("CREATE TABLE ", "CREATE INDEX ", "INSERT INTO ")
_ADDED_COLUMN = " ADD COLUMN "


def test_a_step_of_the_schema_only_adds() -> None:
    for step, statements in UPGRADES.items():
        for statement in statements:
            added = statement.startswith("ALTER TABLE ") and _ADDED_COLUMN in statement
            assert statement.startswith(_ADDS) or added, f"step {step}: {statement}"
            assert not added or "NOT NULL" not in statement or "DEFAULT" in statement, f"step {step}: {statement}"


def upgraded_by_a_later_version(
    folder: Path, url: str, governance: GovernanceConfig, patch: pytest.MonkeyPatch
) -> None:
    """Open the vault as a version would whose step adds a column to every table, and a table."""
    from memos.plugins.postgres import postgres  # loads psycopg

    step = [f"ALTER TABLE {name}{_ADDED_COLUMN}later TEXT" for name in sorted(table_names() - {"memos_vault"})]
    with patch.context() as later:
        later.setitem(schema.UPGRADES, SCHEMA_VERSION, (*step, "CREATE TABLE of_later (n INTEGER PRIMARY KEY)"))
        for module in (schema, postgres):
            later.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
        with MemVault(folder, url=url, governance=governance) as vault:
            assert {"Oslo"} <= {word.strip(".") for cube in vault.cubes() for word in cube.text.split()}


def everything(kernel: MemOS, place: str) -> None:
    """What a server and a worker do."""
    ada = kernel.within("ada")
    [cube] = ada.add(f"I live in {place}.")
    assert place in ada.chat("Where do I live?").text
    for _ in range(6):  # a statement is prepared by the server when it has come several times
        assert any(place in hit.cube.text for hit in ada.search("Where do I live?"))
    ada.grant(cube.id, "bob", "reader")
    kv = ada.promote([cube.id], "activation")
    ada.demote(kv.id)
    ada.tick()
    ada.revoke(cube.id, "bob")
    ada.delete(cube.id)


def test_a_process_goes_on_while_a_later_version_upgrades_and_none_of_its_own_begins(
    new_url: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url()
    governance = GovernanceConfig(audit=AuditConfig(key=tmp_path / "signing.key"))  # all processes sign with one
    config = Config(vault=VaultConfig(url=url), governance=governance)
    with MemOS(config, vault=tmp_path / "here") as kernel:
        everything(kernel, "Rome")
        kernel.within("ada").add("I live in Oslo.")
        upgraded_by_a_later_version(tmp_path / "later", url, governance, monkeypatch)
        everything(kernel, "Lima")
        kernel.within("ada").forget_user()
        kernel.vault.audit_log.sign()
        assert verify_log(kernel.vault.audit_log).problems == []
        with pytest.raises(VaultError, match=f"has schema {SCHEMA_VERSION + 1}, this memos reads up to"):
            MemVault(tmp_path / "another", url=url)
