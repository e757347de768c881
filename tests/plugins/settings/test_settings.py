"""`memos config`, and completion in a shell: what there is to set and to call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner, Result

from memos.config import Config
from memos.cube import Trust
from memos.interface.doors.cli.app import app
from memos.plugins.settings.settings import groups, type_of


def invoke(*args: str, **env: str) -> Result:
    return CliRunner().invoke(app, args, env=env)


def test_settings_are_listed_with_type_default_and_what_they_are_for() -> None:
    shown = invoke("config", "keys", "scheduler.top").stdout
    assert shown == "scheduler.top_k (whole number; 8)\n    memories ranked for a request\n"
    [told] = json.loads(invoke("config", "keys", "scheduler.top", "--json").stdout)["results"]
    assert (told["path"], told["type"], told["default"]) == ("scheduler.top_k", "whole number", "8")


def test_every_setting_is_listed_once_by_the_path_that_set_takes() -> None:
    paths = [key.path for group in groups() for key in group.keys]
    assert len(paths) == len(set(paths)) > 150
    for path in paths:
        value = Config()
        for step in path.split("."):
            value = getattr(value, step)  # every step is there


def test_a_beginning_that_no_setting_has_is_refused_with_those_there_are() -> None:
    result = invoke("config", "keys", "sheduler")
    assert result.exit_code == 1
    assert "no setting begins with 'sheduler'; there are activation" in result.stderr


def test_the_schema_is_printed_or_written(tmp_path: Path) -> None:
    printed = json.loads(invoke("config", "schema").stdout)
    assert printed["additionalProperties"] is False and "scheduler" in printed["properties"]
    assert invoke("config", "schema", str(tmp_path / "s.json")).exit_code == 0
    assert json.loads((tmp_path / "s.json").read_text("utf-8")) == printed
    refused = invoke("config", "schema", str(tmp_path / "none" / "s.json"))
    assert refused.exit_code == 1 and "cannot be written (No such file or directory); name another" in refused.stderr


@pytest.mark.parametrize(
    "annotation, words",
    [
        (int, "whole number"),
        (float | None, "number or unset"),
        (Literal["a", "b"], "a, b"),
        (tuple[str, ...], "list of text"),
        (dict[str, float], "text to number"),
        (Trust, "user, tool, document, model, imported, untrusted"),
        (bool, "true or false"),
        (Path, "text"),
    ],
)
def test_types_are_told_in_the_words_of_yaml(annotation: object, words: str) -> None:
    assert type_of(annotation) == words


@pytest.mark.parametrize("begun, offered", [("va", "vault"), ("vault che", "check"), ("search --ex", "--explain")])
def test_a_shell_completes_commands_and_options(begun: str, offered: str) -> None:
    words = f"memos {begun}"
    env = {"_MEMOS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = CliRunner().invoke(app, [], env=env, prog_name="memos")
    assert offered in done.stdout.split()
