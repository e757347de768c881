"""How much of conversations the gate can ask about, measured from the command line on an invented dialogue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos.interface.doors.cli.app import app

SAID = (
    ("Nora", "We painted the old rowing boat green before the regatta."),
    ("Elias", "Wow, that sounds great!"),
    ("Elias", "My uncle carried eleven lanterns down to the harbour last Friday."),
    ("Nora", "The lighthouse keeper baked us a plum cake with cinnamon."),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two sessions of a dialogue in LoCoMo's form."""
    conversation: dict[str, object] = {}
    for number, day in enumerate((8, 25), start=1):
        conversation[f"session_{number}_date_time"] = f"1:56 pm on {day} May, 2023"
        conversation[f"session_{number}"] = [
            {"dia_id": f"D{number}:{n}", "speaker": speaker, "text": words if number == 1 else f"{words} Again!"}
            for n, (speaker, words) in enumerate(SAID, start=1)
        ]
    asked = {"question": "What was painted?", "answer": "a boat", "evidence": ["D1:1"], "category": 4}
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"sample_id": "talk", "conversation": conversation, "qa": [asked]}]), "utf-8")
    return path


@pytest.mark.slow
def test_it_tells_what_can_be_asked_about_and_lets_nothing_through_unjudged(data: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    given = ["bench", "askable", "--data", str(data), "--groups", "2", "--gate", "1", "--json", str(report)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    text, model = json.loads(report.read_text("utf-8"))["rows"]
    assert text["askable"] > 0.5 and text["own"] == 1 and text["questions"] > 10
    assert model["askable"] == 0 and model["refused"] == 2  # the packaged model reads no such sentences
    assert text["unjudged"] == model["unjudged"] == 0
    assert "1 cannot be judged" in done.stdout


def test_more_groups_than_there_are_is_refused(data: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "askable", "--data", str(data), "--groups", "50"])
    assert done.exit_code != 0 and "50 are to be drawn" in done.output


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[1]", "utf-8")
    done = CliRunner().invoke(app, ["bench", "askable", "--data", str(tmp_path / "other.json")])
    assert done.exit_code != 0 and "is not of locomo's form" in done.output
