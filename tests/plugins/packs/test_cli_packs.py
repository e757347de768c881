"""`memos dump`, `load` and `store`: what they print, and what they say of wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memos import MemOS
from memos.interface.doors.cli.app import app


def memos(*command: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in command])


def said(*command: object) -> str:
    done = memos(*command)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    with MemOS(vault=tmp_path / "vault") as kernel:
        kernel.add("Mira lives in Lisbon.")
        kernel.add("Tom lives in Rome.")
    return tmp_path / "vault"


def test_a_dump_is_loaded_in_a_vault_that_is_made_for_it(vault: Path, tmp_path: Path) -> None:
    pack, other = tmp_path / "x.mip", tmp_path / "other"
    dumped = json.loads(said("dump", pack, "--vault", vault, "--json"))
    assert (dumped["path"], dumped["memories"], dumped["left"]) == (str(pack), 2, {})
    key = said("dump", tmp_path / "again.mip", "--vault", vault).split()[-1]
    assert key == dumped["key"]
    refused = memos("load", pack, "--vault", other)
    assert refused.exit_code == 1 and f"give --trust {key}" in refused.output
    assert said("load", pack, "--vault", other, "--trust", key).strip() == "2 added"
    assert said("load", pack, "--vault", other).strip() == "2 there already"
    assert len(json.loads(said("load", pack, "--vault", other, "--json"))["there"]) == 2
    assert "Lisbon" in said("ls", "--vault", other)
    wrong = memos("load", pack, "--vault", other, "--clash", "overwrite")
    assert wrong.exit_code == 1 and "give one of refuse, rename, update" in wrong.output
    assert memos("load", tmp_path / "none", "--vault", other).exit_code == 1


def test_a_pack_goes_through_a_registry(vault: Path, tmp_path: Path) -> None:
    place, bob = ("--registry", tmp_path / "packs"), ("--vault", tmp_path / "bob", "--user", "bob")
    publish = ("store", "publish", "ada/life", "1.0.0", *place, "--licence", "CC0-1.0", "--vault", vault)
    key = said(*publish, "--description", "Who lives where").split()[-1]
    assert memos(*publish).exit_code == 1
    found = "ada/life 1.0.0  2 memories, CC0-1.0  Who lives where\n"
    assert said("store", "search", *place) == found
    assert json.loads(said("store", "search", *place, "--json"))["results"][0]["key"] == key
    assert said("store", "show", "ada/life", *place) == f"{found}1.0.0: key {key}\n"
    assert said("store", "install", "ada/life", *place, *bob, "--trust", key) == "ada/life 1.0.0: 2 added\n"
    assert "left as it is" in said("store", "list", *bob)
    [there] = json.loads(said("store", "list", *bob, "--json"))["results"]
    assert (there["key"], there["registry"], there["subscribed"]) == (key, str(tmp_path / "packs"), False)
    assert json.loads(said("store", "keys", *bob[:2], "--json"))["trusted"] == {"ada": key}
    assert json.loads(said("store", "update", "ada/life", *bob, "--json"))["results"][0]["loaded"] is None
    assert f"{key}  ada" in said("store", "keys", *bob[:2])
    assert said("store", "update", "ada/life", *bob) == "ada/life 1.0.0: nothing is new\n"
    assert "kept up" in said("store", "subscribe", "ada/life", *bob)
    said("store", "withdraw", "ada/life", "1.0.0", *place, "--why", "it is wrong", "--vault", vault)
    assert said("store", "update", *bob).count("was withdrawn: it is wrong") == 2
    assert said("store", "remove", "ada/life", *bob) == "ada/life is removed, 2 memories\n"
    assert "no pack is installed" in said("store", "list", *bob)
    assert said("store", "untrust", "ada", *bob) == "no key of ada is trusted\n"
    for wrong in (("search",), ("show", "ada/none", *place), ("untrust", "eve", *bob)):
        refused = memos("store", *wrong)
        assert refused.exit_code == 1 and "error: " in refused.output


def test_an_update_that_fails_ends_with_an_error(vault: Path, tmp_path: Path) -> None:
    place = tmp_path / "packs"
    key = said(
        *("store", "publish", "ada/life", "1.0.0", "--registry", place, "--licence", "", "--vault", vault)
    ).split()[-1]
    there = ("--vault", tmp_path / "bob")
    said("store", "install", "ada/life", "--registry", place, *there, "--trust", key, "--subscribe")
    (place / "index.json").unlink()
    failed = memos("store", "update", *there)
    assert failed.exit_code == 1 and "1 of 1 packs could not be brought up to date" in failed.output
    failed = memos("store", "update", *there, "--json")
    assert failed.exit_code == 1 and json.loads(failed.stdout)["results"][0]["failed"] and "1 of 1" in failed.stderr
