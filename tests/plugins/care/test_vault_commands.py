"""The commands that look after a vault say what is so, and end with a code that says it too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos.infrastructure.vault.mem_vault import MemVault
from memos.interface.doors.cli.app import app
from tests.plugins.care.test_check import fill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MemVault(tmp_path / "vault") as vault:
        fill(vault)
    return vault.path


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["vault", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.stdout if "--json" in arguments else done.output


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.sqlite
def test_a_sound_vault_and_a_spoilt_one_are_told_apart(folder: Path) -> None:
    assert "is sound" in run("check", folder)
    told = json.loads(run("check", folder, "--json"))
    assert (told["path"], told["problems"]) == (str(folder), [])
    spoil(folder / "vectors.db")
    assert "vectors.db is not what was written" in run("check", folder, code=1)
    assert "vectors.db" in json.loads(run("check", folder, "--json", code=1))["problems"][0]


def test_the_vault_of_the_config_is_checked_if_none_is_named(folder: Path) -> None:
    assert f"{folder} is sound" in run("check", "--set", f"vault.path={folder}").replace("\n", "")


def test_a_folder_without_a_vault_is_an_error(tmp_path: Path) -> None:
    for command in ("check", "stats", "compact"):
        assert "holds no vault" in run(command, tmp_path / "none", code=1)
    assert "holds no vault" in run("backup", tmp_path / "b", "--vault", tmp_path / "none", code=1)
    assert not (tmp_path / "none").exists()


@pytest.mark.sqlite
def test_a_backup_is_made_checked_and_brought_back(folder: Path, tmp_path: Path) -> None:
    backup, again = tmp_path / "backup", tmp_path / "again"
    assert "of them copied" in run("backup", backup, "--vault", folder)
    assert "is sound" in run("check", backup)
    assert json.loads(run("backup", backup, "--vault", folder, "--json"))["folder"] == str(backup)
    assert json.loads(run("restore", backup, tmp_path / "told", "--json"))["path"] == str(tmp_path / "told")
    assert "is the vault" in run("restore", backup, again)
    assert "is sound" in run("check", again)
    assert "is not empty" in run("restore", backup, again, code=1)
    spoil(backup / "vault.db")
    assert "does not match its digest" in run("check", backup, code=1)
    assert "does not match its digest" in run("restore", backup, tmp_path / "third", code=1)


def test_figures_and_the_space_that_was_given_back(folder: Path) -> None:
    told = json.loads(run("stats", folder, "--json", "--set", "vault.quota.cubes_per_user=80"))
    assert told["users"] == {"ada": 59} and told["quotas"]["cubes_per_user"] == {"used": 59, "limit": 80}
    assert "cubes_per_user" in run("stats", folder)
    assert "bytes before" in run("compact", folder)
    assert json.loads(run("compact", folder, "--json"))["after"] > 0
    assert "is sound" in run("check", folder)
