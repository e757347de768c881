"""Single memories, why an answer is given, and what there is, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memos import MemOS
from memos.interface.doors.cli.app import app


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vault") / "vault"
    with MemOS(vault=path) as kernel:
        for text in ("Mira lives in Lisbon.", "Tom plays chess.", "Kim likes tea."):
            kernel.add(text)
    return path


def invoke(vault: Path, *command: object, say: str | None = None) -> Result:
    return CliRunner().invoke(app, [*map(str, command), "--vault", str(vault)], input=say)


def said(vault: Path, *command: object, say: str | None = None) -> str:
    done = invoke(vault, *command, say=say)
    assert done.exit_code == 0, done.output
    return done.output


def listed(vault: Path) -> dict[str, Any]:
    """The memories by what they say."""
    return {told["memory"]: told for told in json.loads(said(vault, "ls", "--json"))["results"]}


def test_a_memory_is_changed_with_its_metadata(vault: Path) -> None:
    id = listed(vault)["Kim likes tea."]["id"]
    assert said(vault, "update", id, "Kim likes figs.") == f"{id} version 2: Kim likes figs.\n"
    [told] = json.loads(said(vault, "update", id, "--metadata", '{"page": 3}', "--json"))["results"]
    assert (told["memory"], told["metadata"], told["version"]) == ("Kim likes figs.", {"page": 3}, 3)
    for wrong, why in (([], "changes nothing"), (["--metadata", "[1]"], "is no JSON object")):
        refused = invoke(vault, "update", id, *wrong)
        assert refused.exit_code == 1 and why in refused.stderr


def test_why_an_answer_is_given_and_what_has_helped(vault: Path) -> None:
    id = listed(vault)["Mira lives in Lisbon."]["id"]
    shown = said(vault, "explain", "Where does Mira live?").splitlines()
    assert shown[0].startswith("Lisbon  [") and any(id in line and "+" in line for line in shown[1:])
    told = json.loads(said(vault, "explain", "Where does Mira live?", "--answer", "Oslo", "--json"))
    assert told["answer"] == "Oslo" and told["cost"]["model_calls"] > 1
    assert said(vault, "feedback", id, "--useful", 1).startswith(f"{id}  utility +")
    assert f"{id}  +" in said(vault, "feedback", "--question", "Where does Mira live?", "--answer", "Lisbon")
    refused = invoke(vault, "feedback", id)
    assert refused.exit_code == 1 and "give one of the pairs" in refused.stderr


def test_where_a_memory_comes_from_and_what_there_is(vault: Path) -> None:
    one, other = (listed(vault)[text]["id"] for text in ("Mira lives in Lisbon.", "Tom plays chess."))
    fused = said(vault, "fuse", one, other).split()[0]
    assert said(vault, "lineage", fused).count("made of ") == 2
    assert [cube["id"] for cube in json.loads(said(vault, "lineage", one, "--json"))["derived"]] == [fused]
    assert "2 plaintext merged" in said(vault, "overview").splitlines()
    assert json.loads(said(vault, "overview", "--json"))["cubes"]["plaintext merged"] == 2


def test_what_is_deleted_is_asked_for_first_and_gone_then(vault: Path) -> None:
    told = listed(vault)["Tom plays chess."]
    assert "nothing is held" in said(vault, "holds")
    said(vault, "hold", told["id"], "--why", "a case")
    assert [one["note"] for one in json.loads(said(vault, "holds", "--json"))["results"]] == ["default: a case"]
    held = invoke(vault, "delete", told["id"], "--yes")
    assert held.exit_code == 1 and "a case" in held.stderr
    said(vault, "end-hold", told["id"])
    refused = invoke(vault, "delete", told["id"], say="n\n")
    assert refused.exit_code == 1 and "give --yes" in refused.stderr
    assert "Tom plays chess." in refused.stdout and "Tom plays chess." in listed(vault)
    assert f"{told['id']} is deleted" in said(vault, "delete", told["id"], say="y\n")
    assert "Tom plays chess." not in listed(vault)
    assert invoke(vault, "delete", told["id"], "--yes").exit_code == 1
