"""The invented people: whole and consistent; and the benchmark that tells a memory their lives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos.bench.developer.persona import Person, bench_persona, people
from memos.errors import InputError
from memos.interface.doors.cli.app import app

WALT: dict[str, Any] = {
    "name": "walt",
    "messages": {
        1: {"date": "2026-01-08", "text": "bandsaw takes a 105 inch blade"},
        2: {"date": "2026-03-02", "text": "tapped 30 maples this yr"},
    },
    "questions": [
        {"ask": "what size blade for the bandsaw", "answer": ["105"], "messages": [1]},
        {"ask": "how many maples did I tap", "answer": ["not said"], "messages": [2]},
    ],
    "changes": [
        {"earlier": "I live in Rye.", "later": "I live in Putney now.", "question": "my home town?", "now": ["putney"]}
    ],
    "requests": [
        {"said": ["bees are in the barn"], "chat": ["Delete where the bees are."], "gone": ["barn"], "stays": []},
        {"said": ["bees are in the barn"], "chat": ["hello"], "gone": ["barn"], "stays": []},
    ],
}  # fmt: skip


def show(what: str, done: int, of: int) -> None:
    assert what and 0 < done <= of


def test_what_should_be_found_was_said_and_what_changes_was_not_said_before() -> None:
    every = people()
    assert [person.name for person in every] == ["aoife", "strangers", "walt", "yifan"]
    strangers = every.pop(1)
    assert len(strangers.changes) == 60 and not strangers.messages
    for person in every:
        assert [len(part) for part in (person.messages, person.questions, person.changes, person.requests)] == [
            60, 25, 20, 15,
        ]  # fmt: skip
        days = [message.date for message in person.messages.values()]
        assert days == sorted(days) and (days[-1] - days[0]).days > 240
        for question in person.questions:
            for n in question.messages:
                assert any(word in person.messages[n].text.casefold() for word in question.answer), question
        for change in (*person.changes, *strangers.changes):
            assert any(word in change.later.casefold() for word in change.now), change
            assert not any(word in change.earlier.casefold() for word in change.now), change
        for request in person.requests:
            assert all(word in " ".join(request.said + request.chat).casefold() for word in request.stays), request
    han = [sum(bool(re.search(r"[\u4e00-\u9fff]", m.text)) for m in person.messages.values()) for person in every]
    assert han == [0, 0, 5]


def test_each_part_is_judged_and_what_came_out_wrong_is_told() -> None:
    report = bench_persona(show, [Person.model_validate(WALT)])
    assert (report["sentences"], report["kept"], report["questions"], report["top3"]) == (2, 2, 2, 0.5)
    assert (report["changes"], report["requests"]) == (1.0, 0.5)
    assert (report["told"], report["told_now"]) == (0.5, 1.0)
    assert (
        bench_persona(show, [Person(name="nobody", messages={}, questions=(), changes=(), requests=())])["top3"] is None
    )
    assert [(failure["part"], failure["message"][-1]) for failure in report["failures"]] == [
        ("questions", "how many maples did I tap"),
        ("requests", "hello"),
    ]
    assert report["failures"][0]["got"]["memories"]


def test_people_that_are_not_there_or_of_another_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run the benchmark in a checkout"):
        people(tmp_path)
    (tmp_path / "ann.yaml").write_text("name: ann\nfriends: []\n")
    with pytest.raises(InputError, match="friends"):
        people(tmp_path)


@pytest.mark.slow
def test_nothing_that_three_people_say_is_lost(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["bench", "persona", "--json", str(tmp_path / "report.json")])
    assert ran.exit_code == 0, ran.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["bench"], report["sentences"], report["kept"], report["questions"]) == ("persona", 180, 180, 75)
    assert [row["people"] for row in report["rows"]] == ["all", "aoife", "strangers", "walt", "yifan"]
