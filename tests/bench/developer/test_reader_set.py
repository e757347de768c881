"""The requests that the reader is measured by: enough of each kind, well formed, and none that it was built with."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import memos.bench.developer
from memos.interface.doors.cli.app import app

ROOMS = {  # intent: arguments that it must have, arguments that it may have
    "remember": ({"what"}, {"who", "when"}),
    "recall": ({"what"}, {"who", "when"}),
    "correct": ({"what"}, {"who", "when"}),
    "forget": ({"what"}, {"who"}),
    "share": ({"what", "with"}, {"relation", "until"}),
    "unshare": ({"what", "with"}, set()),
    "promote": ({"what", "to"}, set()),
    "demote": ({"what"}, set()),
    "freeze": ({"what"}, set()),
    "thaw": ({"what"}, set()),
    "rollback": ({"what", "to"}, set()),
    "about": ({"ask"}, {"what"}),
    "talk": (set(), set()),
    "ask_back": ({"intent"}, {"what"}),
}
VALUES = {
    ("share", "relation"): {"annotator", "editor", "owner"},
    ("promote", "to"): {"activation", "parametric"},
    ("about", "ask"): {"list", "count", "why", "history", "status", "jobs"},
    ("ask_back", "intent"): {"forget", "rollback", "unshare", "correct"},
}
KINDS = {"plain", "context", "time", "several", "ambiguous", "nearmiss"}

Cases = list[dict[str, Any]]


def load(path: Path) -> Cases:
    cases: Cases = yaml.safe_load(path.read_text(encoding="utf-8"))
    return cases


@pytest.fixture(scope="module")
def held_out() -> Cases:
    return load(Path(memos.bench.developer.__file__).with_name("reader.yaml"))


@pytest.fixture(scope="module")
def development() -> Cases:
    return load(Path(__file__).parents[2] / "interface" / "reading" / "requests" / "reader_dev.yaml")


@pytest.fixture(params=["held_out", "development"])
def cases(request: pytest.FixtureRequest) -> Cases:
    chosen: Cases = request.getfixturevalue(request.param)
    return chosen


def operations(cases: Cases) -> list[tuple[str, dict[str, Any]]]:
    return [(operation["intent"], operation["arguments"]) for case in cases for operation in case["operations"]]


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def test_there_are_at_least_400_requests_in_two_languages(held_out: Cases) -> None:
    languages = Counter(case["lang"] for case in held_out)
    assert len(held_out) >= 400
    assert languages["en"] + languages["zh"] == len(held_out)
    assert 0.5 < languages["en"] / len(held_out) < 0.6


def test_there_is_enough_of_each_intent_and_of_each_difficulty(held_out: Cases) -> None:
    intents = Counter(intent for intent, _ in operations(held_out))
    assert set(intents) == set(ROOMS) and min(intents.values()) >= 18
    assert min(intents["remember"], intents["recall"]) >= 60 and min(intents["correct"], intents["forget"]) >= 22
    assert intents["ask_back"] >= 30
    assert sum(len(case["operations"]) > 1 for case in held_out) >= 45
    assert sum(bool(case["turns"]) for case in held_out) >= 45
    assert sum("when" in arguments or "until" in arguments for _, arguments in operations(held_out)) >= 45


def test_the_reader_is_trained_with_none_of_the_requests(held_out: Cases, development: Cases) -> None:
    folder = Path(__file__).parents[3] / "scripts" / "reader"
    marked = [line.split("|", 4)[4] for file in folder.glob("*.txt") for line in file.read_text("utf-8").splitlines()]
    trained = {plain(re.sub(r"<[^>]*>", "", words)) for words in marked}
    measured, judged = ({plain(case["request"]) for case in cases} for cases in (held_out, development))
    assert len(trained) > 7000 and not measured & trained and not judged & trained and not measured & judged


def test_each_case_is_whole(cases: Cases) -> None:
    assert len({case["id"] for case in cases}) == len(cases)
    assert len({(plain(case["request"]), str(case["turns"])) for case in cases}) == len(cases)
    for case in cases:
        assert list(case) == ["id", "lang", "kind", "date", "turns", "request", "operations"], case["id"]
        assert case["kind"] in KINDS and isinstance(case["date"], datetime) and case["date"].tzinfo, case["id"]
        assert (case["lang"] == "zh") == any("一" <= letter <= "鿿" for letter in case["request"]), case["id"]
        assert all(set(turn) in ({"role", "content"}, {"speaker", "content"}) for turn in case["turns"]), case["id"]
        assert case["turns"] or case["kind"] != "context", case["id"]
        assert (len(case["operations"]) > 1) == (case["kind"] == "several"), case["id"]
        asked_back = {intent for intent, _ in operations([case])} == {"ask_back"}
        assert asked_back == (case["kind"] == "ambiguous"), case["id"]


def test_each_operation_has_the_arguments_of_its_intent(cases: Cases) -> None:
    for case in cases:
        for intent, arguments in operations([case]):
            must, may = ROOMS[intent]
            assert must <= set(arguments) <= must | may, case["id"]
            assert all(value not in (None, "") for value in arguments.values()), case["id"]
            for name, value in arguments.items():
                assert value in VALUES.get((intent, name), {value}), case["id"]


def test_times_are_days_or_ranges_of_days(cases: Cases) -> None:
    for case in cases:
        for intent, arguments in operations([case]):
            for time in (arguments.get("when"), arguments.get("until")):
                if time is not None:
                    days = [date.fromisoformat(day) for day in time.split("/")]
                    assert len(days) <= 2 and days == sorted(set(days)), case["id"]
            until = arguments.get("until")
            assert until is None or date.fromisoformat(until) > case["date"].date(), case["id"]
            to = arguments.get("to")
            if intent == "rollback" and isinstance(to, str) and to != "previous":
                assert date.fromisoformat(to) < case["date"].date(), case["id"]


def test_what_and_who_come_from_what_was_said(cases: Cases) -> None:
    for case in cases:
        said = case["request"] + " ".join(turn["content"] + turn.get("speaker", "") for turn in case["turns"])
        for _, arguments in operations([case]):
            for name in {"who", "with"} & set(arguments):
                assert arguments[name] == "user" or arguments[name].lower() in said.lower(), case["id"]
            words = arguments.get("what", "").lower().replace("'", " ").split()
            if case["lang"] == "zh":
                words = list(plain(arguments.get("what", "")))
            unknown = [word for word in words if plain(word) not in plain(said)]
            assert len(unknown) <= 1, (case["id"], unknown)


@pytest.mark.slow
def test_the_command_writes_its_report_and_prints_its_rows(tmp_path: Path) -> None:
    report = tmp_path / "reader.json"
    given = (
        "--cases",
        Path(__file__).parents[2] / "interface" / "reading" / "requests" / "reader_dev.yaml",
        "--extracted",
        "0",
    )
    done = CliRunner().invoke(app, ["bench", "reader", "--json", str(report), *map(str, given)])
    assert done.exit_code == 0, done.output
    told = json.loads(report.read_text("utf-8"))
    assert told["requests"] == told["turns"] >= 100 and told["intent"] > 0.9
    assert "zh, several" in done.stdout
