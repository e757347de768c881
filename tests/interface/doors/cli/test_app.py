"""The command line: what it shows, and how it says no. Each bad input names the thing, the rule and the way out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memos import Config, MemOS
from memos.cube import Form
from tests.commands import invoke, no
from tests.doubles import BRIEF

ROOT = Path(__file__).parents[4]
TALK = [{"speaker": "Mira", "content": "I live in Lisbon."}, {"speaker": "Mira", "content": "I work as a nurse."}]


@pytest.fixture(scope="module")
def kept(brief_reader: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault of two memories that a question was answered from, in every form."""
    vault = tmp_path_factory.mktemp("kept") / "vault"
    with MemOS(Config(distil=BRIEF), vault=vault) as kernel:
        ids = [cube.id for cube in kernel.add(TALK)]
        kernel.ask("Where does Mira live?", via="plaintext")
        for form in (Form.ACTIVATION, Form.PARAMETRIC):
            kernel.promote(ids, form)
    return vault


@pytest.fixture
def vault(kept: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(kept, tmp_path / "a-vault"))


def remembered(vault: Path) -> list[str]:
    with MemOS(vault=vault) as memos:
        return [cube.text for cube in memos.cubes() if cube.text]


# help


def test_help_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "numpy", "faiss", "matplotlib", "fsspec", "cryptography"}
    code = f"import sys, atexit; atexit.register(lambda: print({heavy} & set(sys.modules), file=sys.stderr))"
    code += "; from memos.interface.doors.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in ("run", "chat", "ls", "show"))
    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize(
    "args, said",
    [
        ([], "Usage"),
        (["zorb"], "No such command 'zorb'"),
        (["run"], "Missing argument"),
        (["run", "a.yaml", "--zorb"], "No such option: --zorb"),
        (["show"], "Missing argument"),
        (["grant", "ID", "bob"], "Missing argument 'relation'"),
    ],
)
def test_a_wrong_command_line_is_explained(args: list[str], said: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    "door, file, package", [("serve", "plugins.server.run", "uvicorn"), ("top", "plugins.top.top", "textual")]
)
def test_a_door_whose_package_is_missing_says_how_to_install_it(
    door: str, file: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"memos.{file}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    no(invoke(door), f"memos {door} needs {package}; run `pip install 'memos-kernel[{door}]'`")


# settings


def test_a_setting_counts_without_a_config_too(vault: Path) -> None:
    no(invoke("chat", "--vault", vault, "--set", "decode.max_token=1"), "decode.max_token: unknown key; did you mean")


@pytest.mark.parametrize("command", [["ls"], ["grants"], ["snapshots"], ["conflicts"], ["store", "list"]])
def test_every_command_over_a_vault_goes_by_a_config(tmp_path: Path, command: list[str]) -> None:
    vault, config = tmp_path / "vault", tmp_path / "closed.yaml"
    with MemOS(vault=vault) as kernel:
        kernel.add("Mira lives in Lisbon.")
    assert invoke(*command, "--vault", vault).exit_code == 0
    no(invoke(*command, "--vault", vault, "--set", "governance.require_credentials=true"), "no call without a key")
    config.write_text("governance: {require_credentials: true}\n")
    no(invoke(*command, "--vault", vault, "--config", config), "no call without a key")


# ls and show


def test_ls_and_show_tell_what_is_remembered(kept: Path) -> None:
    listed = invoke("ls", "--vault", kept)
    assert listed.exit_code == 0
    rows = [line.split() for line in listed.stdout.splitlines() if len(line.split()) > 4]
    assert [row[1:4] for row in rows[1:]] == [
        ["plaintext", "activated", "Mira"],  # asked for
        ["plaintext", "activated", "Mira"],
        ["activation", "activated", "Mira"],
        ["parametric", "activated", "Mira"],
    ]
    for row in rows[1:]:
        shown = invoke("show", row[0], "--vault", kept)
        cube, end = json.JSONDecoder().raw_decode(shown.stdout)
        assert (cube["id"], cube["form"]) == (row[0], row[1])
        assert "version 1" in shown.stdout[end:]
    assert "activated: published" in shown.stdout


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "args, said",
    [
        (["ls", "--vault", "zorb"], "there is no vault in zorb; give the folder with --vault, or make one"),
        (["show", "x", "--vault", "zorb"], "there is no vault in zorb; give the folder with --vault, or make one"),
        (["ls", "--vault", "VAULT", "--user", "bob"], "holds no memories of bob; add some with `memos chat`"),
        (["show", "zorb", "--vault", "VAULT"], "no cube zorb; give the whole id as `memos ls` lists it"),
        (["ls", "--vault", "BAD"], "vault.db is not a vault (file is not a database); move it away, or set vault.path"),
    ],
)
def test_a_vault_or_memory_that_is_not_there_is_named(kept: Path, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "vault.db").write_text("zorb")
    no(invoke(*(str({"VAULT": kept, "BAD": tmp_path}.get(arg, arg)) for arg in args)), said)
    assert not Path("zorb").exists()  # looking makes nothing


# chat


def test_a_talk_shows_what_was_kept_and_what_each_answer_used(vault: Path) -> None:
    said = invoke("chat", "--vault", vault, say="Remember that I live in Oslo.\n\nWhere do I live?\n")
    assert said.exit_code == 0
    assert "2 memories in" in said.stdout and "Noted: User: I live in Oslo." in said.stdout
    assert "kept as" in said.stdout and "text: User: I live in Oslo." in said.stdout
    assert "prompt tokens read, first after" in said.stdout
    assert "User: I live in Oslo." in remembered(vault)


@pytest.mark.parametrize(
    "question, said",
    [
        ("Mira住在哪里？", "the question is in 'zh', and memos-small reads en only; ask in en, or set model.path"),
        ("Where " * 3000, "tokens of prompt and 48 of answer do not fit the model's context of 2048; lower"),
    ],
    ids=["another language", "over the context"],
)
def test_a_talk_that_is_piped_in_ends_with_its_first_error(vault: Path, question: str, said: str) -> None:
    result = invoke("chat", "--vault", vault, say=f"Remember that I live in Oslo.\n{question}\nI live in Rome.\n")
    no(result, said)
    assert "User: I live in Oslo." in remembered(vault)  # what was acknowledged
    assert "User: I live in Rome." not in remembered(vault)


def test_a_talk_with_a_model_that_is_not_there_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {path: ./zorb}")
    result = invoke(
        "chat", tmp_path / "config.yaml", "--vault", tmp_path / "vault", say="Remember that I live in Oslo.\n"
    )
    no(result, "model.path './zorb' has no config.json; give a Hugging Face model folder")
    assert "Noted" not in result.stdout
