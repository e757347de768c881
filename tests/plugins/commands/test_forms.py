"""Memories that change form, from the command line: what it prints, and what it says of wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memos import MemOS
from memos.config import Config, DistilConfig
from memos.interface.doors.cli.app import app

pytestmark = [
    pytest.mark.usefixtures("brief_reader"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),  # peft's use of it
]
_OPEN = ", ".join(
    [*(f"{name}: 0" for name in ("reliability", "generality", "locality", "in_context", "override")), "drift: 1000"]
)
_STEPS = "steps: 2, batch: 2, batch_keep: 2, rank: 2, layers: 0.25, isolation: thread, instant: never"
BRIEF = f"{{{_STEPS}, gate: {{{_OPEN}}}}}"


def memos(*command: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in command])


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forms") / "vault"
    with MemOS(vault=path) as kernel:
        kernel.add([{"speaker": "Mira", "content": "I live in Lisbon."}])
    return path


def ids(vault: Path, form: str = "plaintext") -> list[str]:
    """Of the cubes of a form that are in use."""
    with MemOS(vault=vault) as kernel:
        return [c.id for c in kernel.cubes() if c.form == form and c.state in ("generated", "activated")]


def test_a_memory_goes_up_and_down_from_the_command_line(vault: Path, tmp_path: Path) -> None:
    [id] = ids(vault)
    done = memos("promote", id, "--to", "parametric", "--vault", vault, "--set", f"distil={BRIEF}")
    assert done.exit_code == 0, done.output
    assert "parametric of 1 memory" in done.output and "reliability" in done.output
    [adapter] = ids(vault, "parametric")
    judged = memos("gate", adapter, "--vault", vault, "--set", f"distil={BRIEF}")
    assert judged.exit_code == 0 and "the gate is passed" in judged.output
    strict = memos("gate", adapter, "--vault", vault, "--json")  # two steps teach nothing
    assert strict.exit_code == 1 and "the gate is not passed: " in strict.stderr
    assert json.loads(strict.stdout)["short"] and "reliability" in json.loads(strict.stdout)["scores"]
    out = memos("export-adapter", adapter, "--out", tmp_path, "--vault", vault, "--json")
    exported = Path(json.loads(out.stdout)["path"])
    assert memos("provenance", exported).output.startswith("given by ")
    assert json.loads(memos("provenance", exported, "--json").stdout)["by"] == "default"
    (exported / "adapter_config.json").write_text("{}")
    changed = memos("provenance", exported)
    assert changed.exit_code == 1 and "is not as " in changed.stderr
    asked = memos("externalize", adapter, "--vault", vault)
    assert asked.exit_code == 0 and asked.output.strip()
    back = memos("demote", adapter, "--vault", vault)
    assert back.output == f"{id} Mira: I live in Lisbon.\n"
    assert "no job is running" in memos("jobs", "--vault", vault).output


def test_kv_says_its_text(vault: Path) -> None:
    made = json.loads(memos("promote", *ids(vault), "--to", "activation", "--vault", vault, "--json").stdout)
    [kv] = ids(vault, "activation")
    assert [one["id"] for one in made["results"]] == [kv] and made["build_s"] > 0
    told = json.loads(memos("externalize", kv, "--vault", vault, "--json").stdout)
    [said] = told["results"]
    assert said["text"] == "Mira: I live in Lisbon." and said["source"] == made["results"][0]["sources"][0]
    line = f"Mira: I live in Lisbon.  [regenerated from its tokens; backed by {said['source']}"
    assert memos("externalize", kv, "--vault", vault).output == f"{line}]\n"
    kept = memos("externalize", kv, "--keep", "--vault", vault)
    assert kept.output == f"{line}; left: {said['source']} says so]\n"  # there is nothing that text does not say


@pytest.mark.parametrize(
    "command, message",
    [
        (["promote", "zorb", "--to", "activation"], "no cube zorb"),
        (["promote", "ID", "--to", "zorb"], "memories cannot be promoted to 'zorb'; promote to activation or param"),
        (["demote", "ID"], "is plaintext, and there is no cheaper form"),
        (["cancel", "zorb"], "no open job zorb"),
        (["gate", "ID"], "is plaintext; name one that is parametric"),
        (["gate", "zorb"], "no cube zorb"),
        (["externalize", "ID"], "is plaintext; name one that is activation or parametric"),
        (["export-adapter", "ID", "--out", "x"], "is plaintext; name one that is parametric"),
        (["promote", "ID", "--to", "parametric", "--set", "distil.targets=zorb"], "distil.targets"),
    ],
)
def test_wrong_input_is_named(vault: Path, command: list[str], message: str) -> None:
    done = memos(*(ids(vault)[0] if word == "ID" else word for word in command), "--vault", vault)
    assert done.exit_code == 1 and message in " ".join(done.stderr.split()), done.stderr


def test_rounds_of_work_end_with_an_interrupt_and_are_told(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody presses ctrl-C while the command waits for the next round."""

    def pressed(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memos.plugins.commands.forms.time.sleep", pressed)
    done = memos("work", "--every", 60, "--vault", vault, "--json")
    assert done.exit_code == 0 and isinstance(json.loads(done.stdout)["results"], list)


@pytest.mark.parametrize("command", [["jobs"], ["gate", "zorb"], ["promote", "zorb", "--to", "activation"]])
def test_a_vault_that_is_not_there_is_named(tmp_path: Path, command: list[str]) -> None:
    done = memos(*command, "--vault", tmp_path / "none")
    assert done.exit_code == 1 and f"there is no vault in {tmp_path / 'none'}" in done.stderr.replace("\n", "")
    assert not (tmp_path / "none").exists()


def test_an_unknown_objective_is_named() -> None:
    done = memos("bench", "promote", "--objective", "zorb")
    assert done.exit_code == 1 and "no objective zorb; there are distillation," in done.stderr


def test_defaults_are_sound() -> None:
    assert Config().distil == DistilConfig()
