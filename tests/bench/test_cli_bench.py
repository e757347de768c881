"""Every measurement from the command line, as small as it can be made: it writes its report, and prints its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos.bench.cli import bench
from memos.bench.cli_forms import forms
from memos.bench.developer.cli import developer
from memos.interface.doors.cli.app import app

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
SMALL = "--model memos-small"
# arguments, and a word of the table
RUNS = {
    "compose": ("--questions 2", "recompute"),
    "ttft": (f"{SMALL} --context 256 --query 8 --repeats 1", "256"),
    "kv-io": (f"{SMALL} --tokens 256", "fork"),
    "overlap": (f"{SMALL} --context 96 --query 8 --repeats 1", "page cache"),
    "batch": (f"{SMALL} --clients 2 --tokens 4 --repeats 1", "memos-small"),
    "choice": ("--cases 2 --repeats 1", "memos-small"),
    "adapters": ("--known 2 --repeats 1", "2"),
    "promote": ("--facts 2 --people 1 --objective answers --seeds 1", "answers"),
    "moves": ("--groups 1 --move compact-4x", "compact-4x"),
    "stack": ("--n 1 --facts 2", "method"),
    "search": ("--cubes 200 --queries 2", "200"),
    "scheduler": ("--cubes 200 --requests 2", "200"),
    "updates": ("--facts 2 --updates 2 --small-talk 2", "memos"),
    "supersession": ("", "en"),
    "vault": ("--cubes 200 --rounds 1 --reads 10", "a memory by its id in"),
    "crash": ("--kills 1", "acknowledged"),
    "serve": ("--clients 2 --seconds 2", "the door costs"),
    "redaction": ("", "zh"),
}
ELSEWHERE = {
    "arena",
    "askable",
    "conversations",
    "reader",
    "persona",
}  # needs data that is not here; tests/bench/developer


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_measurement_writes_its_report_and_prints_its_rows(name: str, tmp_path: Path) -> None:
    given, word = RUNS[name]
    done = CliRunner().invoke(app, ["bench", name, "--json", str(tmp_path / "report.json"), *given.split()])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["bench"] == name and report["machine"]
    assert word in done.stdout and "nan" not in done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["doctor", "calibrate --questions 2 --vault {}/vault"])
def test_what_measures_a_model_writes_its_report_and_prints_its_rows(command: str, tmp_path: Path) -> None:
    words = command.format(tmp_path).split()
    done = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "report.json")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["bench"] == words[0]
    assert "memos-small" in done.stdout or "fidelity.level" in done.stdout


def test_no_measurement_is_left_out() -> None:
    commands = (*bench.registered_commands, *forms.registered_commands, *developer.registered_commands)
    assert {command.name for command in commands} == RUNS.keys() | ELSEWHERE
