"""The command line: what it shows, and how it says no. Each bad input names the thing, the rule and the way out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from memos import Config, MemOS, __version__
from memos.__main__ import HELP
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


def modules_after(code: str, *args: object) -> tuple[str, set[str]]:
    """What a program prints, and the packages that it has imported at its end."""
    at_exit = (
        "import sys, atexit; atexit.register(lambda: print(*{n.split('.')[0] for n in sys.modules}, file=sys.stderr))"
    )
    given = [sys.executable, "-c", f"{at_exit}; {code}", *map(str, args)]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    printed, loaded = modules_after("from memos.__main__ import main; main()", "--help")
    assert all(command in printed for command in ("run", "chat", "ls", "show"))
    assert not loaded & {"torch", "transformers", "numpy", "faiss", "matplotlib", "fsspec", "cryptography"}
    assert not loaded & {"typer", "rich", "pydantic", "yaml"}  # the text is stored


def test_the_stored_help_is_what_the_commands_say() -> None:
    """Else run `python scripts/help_text.py`."""
    assert invoke("--help").stdout == HELP.read_text("utf-8")


def test_a_memory_is_added_found_and_listed_without_a_library_for_language_models(tmp_path: Path) -> None:
    command = (
        "from memos.interface.doors.cli.app import app; run = lambda *a: app([*a, *sys.argv[1:]], standalone_mode=0)"
    )
    code = f"{command}; run('add', 'I live in Oslo.'); run('search', 'Where do I live?'); run('ls')"
    printed, loaded = modules_after(code, "--vault", tmp_path / "vault")
    assert printed.count("I live in Oslo.") == 3
    assert not loaded & {"torch", "transformers", "peft", "accelerate", "scipy", "faiss", "matplotlib"}


@pytest.mark.parametrize(
    "args, said",
    [
        ([], "Usage"),
        (["zorb"], "No such command 'zorb'"),
        (["run"], "Missing argument"),
        (["run", "a.yaml", "--zorb"], "No such option: --zorb"),
        (["search", "x", "--vualt", "v"], "No such option: --vualt; did you mean --vault?"),
        (["vault", "check", "--jsno"], "did you mean --json?"),
        (["serach", "x"], "Did you mean 'search'?"),
        (["ls", "--vault"], "requires an argument"),
        (["show"], "Missing argument"),
        (["grant", "ID", "bob"], "Missing argument 'relation'"),
        (["search", "x", "--top-k", "abc"], "given: 'abc'"),
        (["rollback", "ID", "first"], "given: 'first'"),
        (["chat", "--rewind", "-3"], "given: '-3'"),
    ],
)
def test_a_wrong_command_line_is_explained(args: list[str], said: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert said in result.output
    assert not args or (len(result.output.splitlines()) == 1 and "--help` lists what there is" in result.output)


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


def test_the_environment_names_a_vault_for_all_doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_VAULT", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert invoke("add", "Mira lives in Lisbon.").exit_code == 0
    with MemOS() as memos:
        assert [cube.text for cube in memos.cubes()] == ["Mira lives in Lisbon."]
    assert "home is sound" in invoke("vault", "check").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_setting_counts_without_a_config_too(vault: Path) -> None:
    no(invoke("chat", "--vault", vault, "--set", "decode.max_token=1"), "decode.max_token: unknown key; did you mean")
    no(
        invoke("chat", "Where is Mira?", "--vault", vault),
        "no config file 'Where is Mira?'; what is meant for the model",
    )


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


def test_ls_narrows_down_to_a_form_a_topic_a_time_and_the_last(kept: Path) -> None:
    def listed(*options: object) -> list[str]:
        found = invoke("ls", "--vault", kept, "--json", *options)
        return [one["form"] for one in json.loads(found.stdout)["results"]]

    assert listed("--form", "activation") == ["activation"]
    assert listed("--limit", 3) == ["plaintext", "activation", "parametric"]
    assert len(listed("--topic", "Mira", "--since", "2020-01-01")) == 4
    assert listed("--until", "2020-01-01") == listed("--tag", "zorb") == listed("--state", "frozen") == []
    table = invoke("ls", "--vault", kept, "--limit", 1).stdout.splitlines()
    assert len(table) == 2 and f"{date.today():%Y-}" in table[1]
    no(invoke("ls", "--vault", kept, "--topic", "zorb"), "of the 4 memories", "none is so; leave options out")


@pytest.mark.parametrize("name", ["nofile.docx", "nofile.txt", "notes/nofile"])
def test_the_name_of_a_file_that_is_not_there_is_no_statement(tmp_path: Path, name: str) -> None:
    no(invoke("add", name, "--vault", tmp_path / "v"), f"{name}: no such file", "--text if it is a statement")
    assert invoke("add", name, "--text", "--vault", tmp_path / "v").exit_code == 0
    assert remembered(tmp_path / "v") == [f"{name}."]


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "args, said",
    [
        (["ls", "--vault", "zorb"], "there is no vault in zorb; give the folder with --vault, or make one"),
        (["show", "x", "--vault", "zorb"], "there is no vault in zorb; give the folder with --vault, or make one"),
        (["ls", "--vault", "VAULT", "--user", "bob"], "holds no memories of bob; add some with `memos add`"),
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
    said = invoke(
        "chat", "--vault", vault, say="Remember that I live in Oslo.\n\nWhere do I live?\nWho is my dentist?\n"
    )
    assert said.exit_code == 0
    assert said.stdout.count(f"see what is near: memos search 'Who is my dentist?' --vault {vault}; tell it: ") == 1
    assert "2 memories in" in said.stdout and "Noted: User: I live in Oslo." in said.stdout
    assert "kept as" in said.stdout and "text: User: I live in Oslo." in said.stdout
    assert "prompt tokens read, first after" in said.stdout
    assert "User: I live in Oslo." in remembered(vault)


def test_a_talk_that_is_piped_in_ends_with_its_first_error(vault: Path) -> None:
    """Questions in a language that the model does not read are none: they are answered in quotes."""
    said = ("Remember that I live in Oslo.", "Mira住在哪里？", "Where " * 3000, "I live in Rome.")
    result = invoke("chat", "--vault", vault, say="".join(f"{line}\n" for line in said))
    no(result, "tokens of prompt and 48 of answer do not fit the model's context of 2048; lower")
    assert "我只会引用你的原话：memos-small" in result.stdout
    assert "User: I live in Oslo." in remembered(vault)  # what was acknowledged
    assert "User: I live in Rome." not in remembered(vault)


def test_a_talk_with_a_model_that_is_not_there_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {path: ./zorb}")
    result = invoke(
        "chat", tmp_path / "config.yaml", "--vault", tmp_path / "vault", say="Remember that I live in Oslo.\n"
    )
    no(result, "model.path './zorb' has no config.json; give a Hugging Face model folder")
    assert "Noted" not in result.stdout


def test_the_version_is_told() -> None:
    assert invoke("--version").stdout == f"memos {__version__}\n"
