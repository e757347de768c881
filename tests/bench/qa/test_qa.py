"""`memos bench qa` end to end on one small dialogue: cut off, over an endpoint that fails, and refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos.bench.qa import bench
from memos.bench.qa.answerers import EndpointLimits, in_order, that_fit
from memos.bench.qa.bench import Ask, bench_qa
from memos.bench.qa.extractive import Extractive
from memos.bench.qa.judge import read_exam
from memos.bench.qa.records import Answer, Shown, Task
from memos.bench.qa.shown import BASELINES
from memos.config import Config
from memos.errors import InputError, MemosError
from memos.interface.doors.cli.app import app
from memos.plugins import chat_endpoint
from memos.plugins.chat_endpoint import ChatEndpoint
from tests.bench import test_bench
from tests.chat_server import Said, chat_server

SAID = [
    ("Ann", "2024-03-04T10:00:00Z", "I moved to Leeds yesterday, the flat is tiny."),
    ("Bo", "2024-03-04T10:01:00Z", "Lovely! I adopted a grey cat called Miso."),
    ("Ann", "2024-03-09T10:00:00Z", "My sister Carla works as a nurse in York."),
    ("Bo", "2024-03-09T10:02:00Z", "I start my pottery class next Monday."),
]
ASKED = [
    ("When did Ann move to Leeds?", "3 March 2024", ["0"], "temporal"),
    ("What is Bo's cat called?", "Miso", ["1"], "single-hop"),
    ("Where does Carla work?", "York", ["2"], "single-hop"),
    ("What instrument does Carla play?", "", [], "abstention"),
    ("What should you keep to?", "", [], "instruction_following"),  # the key has no answer to it
]


def talk(folder: Path, asked: Sequence[tuple[str, str, list[str], str]] = ASKED) -> Path:
    """A file of BEAM's form."""
    turns = [{"id": n, "speaker": who, "time": when, "content": text} for n, (who, when, text) in enumerate(SAID)]
    questions = [{"question": q, "answer": a, "evidence": e, "ability": kind} for q, a, e, kind in asked]
    file = folder / "talk.json"
    file.write_text(json.dumps([{"id": "talk", "turns": turns, "questions": questions}]))
    return file


def ask(file: Path, out: Path, model: str = "extractive", **more: Any) -> Ask:
    given = {"judge": None, "systems": (), "via": ("plaintext",), "groups": 2, "conversations": None, "questions": None}
    given |= {"budget": 1600, "context": None, "key": None, "exam": None, "seed": 0, **more}
    return Ask(kind=str(file), data=None, model=model, out=out, **given)


def run(asked: Ask, limits: EndpointLimits = EndpointLimits()) -> dict[str, Any]:
    return bench_qa(asked, Config(), limits, test_bench.Shown())


def test_every_question_is_asked_of_every_baseline_and_a_second_run_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask(talk(tmp_path), tmp_path / "out")
    report = run(asked)
    rows = {(row["system"], row["category"]): row for row in report["rows"]}
    assert {system for system, _ in rows} == set(BASELINES)
    assert all(row["failed"] == 0 and row["f1_low"] <= row["f1"] <= row["f1_high"] for row in rows.values())
    assert rows["memos", "single-hop"]["evidence_recall"] == 1 and rows["memos", "single-hop"]["f1"] > 0.4
    assert rows["none", "single-hop"]["f1"] == 0 and rows["none", "abstention"]["refused"] == 1
    assert not any(category == "instruction_following" for _, category in rows)
    assert {row["via"] for row in report["rows"]} == {"none", "plaintext"}

    one = json.loads((tmp_path / "out/answers/memos/plaintext/talk/0001.json").read_text())
    assert one["question"] == ASKED[1][0] and one["gold"] == "Miso" and len(one["answer"]["prompt"]) == 64

    before = (tmp_path / "out/report.json").read_bytes()
    monkeypatch.setattr(Extractive, "answer", lambda *_: pytest.fail("it is all there"))
    run(asked)
    assert (tmp_path / "out/report.json").read_bytes() == before and b"ttft" not in before


class CutOff(Extractive):
    """Ends as if it had been killed, after so many questions."""

    left = 0

    def answer(self, tasks: Sequence[Task]) -> list[Answer]:
        CutOff.left -= 1
        if CutOff.left < 0:
            raise KeyboardInterrupt
        return super().answer(tasks)


def test_a_run_that_is_cut_off_ends_with_the_report_of_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = talk(tmp_path)
    run(ask(file, tmp_path / "whole"))
    monkeypatch.setattr("memos.bench.qa.run.AT_ONCE", 3)
    monkeypatch.setattr("memos.bench.qa.answerers.Extractive", CutOff)
    for _ in range(9):
        CutOff.left = 1
        try:
            run(ask(file, tmp_path / "parts"))
            break
        except KeyboardInterrupt:
            pass
    else:
        pytest.fail("it never ends")
    for name in ("report.json", "report.html"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_twenty_kills_at_random_leave_no_trace_in_the_report(tmp_path: Path) -> None:
    file, draw = talk(tmp_path), random.Random(0)
    run(ask(file, tmp_path / "whole"))
    command = [sys.executable, "-m", "memos", "bench", "qa", "--set", str(file), "--out", str(tmp_path / "killed")]
    command += ["--groups", "2"]  # as of `ask`
    for _ in range(20):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(2, 12))
        process.kill()
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for name in ("report.json", "report.html"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_endpoint_that_fails_leaves_no_question_unaccounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "FIRST_WAIT_S", 0.01)
    seen, bad = Counter[str](), {0: Said(status=500), 1: Said(body=b"<html>"), 2: Said(status=429), 3: Said()}

    def answers(before: int, request: dict[str, Any]) -> Said:
        question = request["messages"][-1]["content"]
        seen[question] += 1
        if "Carla work" in question:
            return Said(status=500)  # always
        return Said("Miso") if before % 7 else bad[before % 4]

    with chat_server(answers) as (url, asked):
        report = run(ask(talk(tmp_path), tmp_path / "out", url))
        rows = report["rows"]
        assert sum(row["failed"] for row in rows) == len(report["failures"]) == len(BASELINES)
        assert all("500" in failure["why"] for failure in report["failures"])
        ours = next(row for row in rows if row["system"] == "memos" and row["category"] == "single-hop")
        assert (ours["questions"], ours["failed"], ours["f1"]) == (2, 1, 1.0)  # what failed is not scored as 0
        told = next(a["messages"][0]["content"] for a in asked if "<memories>" in str(a["messages"]))
        assert told.startswith(f"{bench.INSTRUCTION}What stands between <memories> and </memories> is")
        assert told.endswith("</memories>") and "\n- Bo, 4 March 2024: " in told
        before = len(asked)
    with chat_server(lambda n, request: Said("York")) as (other, asked):
        monkeypatch.setattr("memos.bench.qa.answerers.ChatEndpoint", lambda _, *more: ChatEndpoint(other, *more))
        report = run(ask(talk(tmp_path), tmp_path / "out", url))
        assert not report["failures"] and len(asked) == len(BASELINES) < before  # what failed is asked again, alone


def test_a_judge_judges_once_it_has_passed(tmp_path: Path) -> None:
    """It knows the examination by heart, and takes Miso for right."""
    rights = {(" ".join(case.gold.split()), " ".join(case.right.split())) for case in read_exam()} | {("Miso", "Miso")}

    def verdict(_: int, request: dict[str, Any]) -> Said:
        prompt = request["messages"][-1]["content"]
        gold, answer = (prompt.split(f"\n{part}: ")[1].split("\n")[0] for part in ("Gold answer", "Answer to grade"))
        return Said("RIGHT" if (gold, answer) in rights else "WRONG")

    file, out = talk(tmp_path, ASKED[1:2]), tmp_path / "out"
    with chat_server(verdict) as (url, asked):
        report = run(ask(file, out, judge=url))
        assert report["judge"] == f"default at {url}" and report["examination"]["believed"]
        ours, none = (next(r for r in report["rows"] if r["system"] == name) for name in ("oracle", "none"))
        assert ours["judged"] == (ours["exact"] == 1) and none["judged"] == 0
        before = len(asked)
        assert run(ask(file, out, judge=url))["rows"] == report["rows"] and len(asked) == before
    with chat_server(lambda n, request: Said("RIGHT")) as (url, asked):
        report = run(ask(file, out, judge=url))
    assert report["judge"] is None and "rejects 0.0% of the wrong" in report["examination"]["why"]
    assert all(row["judged"] is None for row in report["rows"])


def test_of_choices_one_is_meant_by_its_letter_or_its_words(tmp_path: Path) -> None:
    file = talk(tmp_path)
    told = json.loads(file.read_text())
    told[0]["questions"] = [
        {"question": q, "answer": "Miso", "choices": ["Tofu", "Miso", "Rex"]} for q in ("One?", "Two?")
    ]
    file.write_text(json.dumps(told))
    said = {"One?": "(B)", "Two?": "It is called Rex."}
    with chat_server(lambda n, request: Said(said[request["messages"][-1]["content"][:4]])) as (url, asked):
        rows = run(ask(file, tmp_path / "out", url))["rows"]
    assert asked[0]["messages"][-1]["content"].endswith("?\n(A) Tofu\n(B) Miso\n(C) Rex")
    assert {row["f1"] for row in rows} == {row["exact"] for row in rows} == {0.5}
    told[0]["questions"][0]["answer"] = "Kim"
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match="the answer 'Kim' is none of the choices"):
        run(ask(file, tmp_path / "other"))


def test_a_context_that_is_too_small_is_cut_by_rule_and_said(tmp_path: Path) -> None:
    with chat_server(lambda n, request: Said("Miso")) as (url, asked):
        report = run(ask(talk(tmp_path), tmp_path / "out", url, context=200))
        assert sum(row["left_out"] for row in report["rows"]) > 0 == len(report["failures"])
        assert all(len(str(one["messages"])) < 200 * 4 for one in asked)


def test_a_budget_of_tokens_ends_a_run_that_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    with chat_server(lambda n, request: Said("Miso")) as (url, asked):
        once = ask(talk(tmp_path), tmp_path / "out", url)
        report = run(once, EndpointLimits(concurrent=1, tokens=60))
        assert len(asked) == 5  # of 12 tokens each
        assert all("budget of 60 tokens is spent" in failure["why"] for failure in report["failures"])
        assert not run(once, EndpointLimits(tokens=10_000))["failures"]
        with pytest.raises(MemosError, match="refused: 404"), chat_server(lambda n, r: Said(status=404)) as (gone, _):
            run(ask(talk(tmp_path), tmp_path / "gone", gone))


def test_the_packaged_model_answers_from_text_and_over_kv(tmp_path: Path) -> None:
    report = run(ask(talk(tmp_path), tmp_path / "out", "memos-small", via=("plaintext", "activation"), questions=2))
    assert {row["via"] for row in report["rows"]} == {"none", "plaintext", "activation"}
    assert all(row["failed"] == 0 and (row["model_calls"] or row["via"] == "activation") for row in report["rows"])
    assert report["promoted"]["activation"] and not any(group["why"] for group in report["promoted"]["activation"])
    one = next((tmp_path / "out/answers/memos/activation/talk").iterdir())
    told = json.loads(one.read_text())
    one.write_text(json.dumps({**told, "answer": {"failed": "no room"}}))
    again = run(ask(talk(tmp_path), tmp_path / "out", "memos-small", via=("plaintext", "activation"), questions=2))
    assert [r["questions"] for r in again["rows"]] == [
        r["questions"] for r in report["rows"]
    ]  # what failed is asked again
    assert not again["failures"] and json.loads(one.read_text())["answer"]["text"] == told["answer"]["text"]


def test_what_does_not_fit_is_left_out_by_rule() -> None:
    shown = [
        Shown(text=f"{n}", words="", said=f"2024-01-0{9 - n}", score=score) for n, score in enumerate((3, 1, 2, 2))
    ]
    assert [one.text for one in in_order(shown)] == ["3", "2", "1", "0"]
    assert [one.text for one in that_fit(shown, [10, 10, 10, 10], 25)] == ["2", "0"]  # of two alike the later one
    assert that_fit(shown, [10, 10, 10, 10], 5) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "locomo"], "needs its file; give it with --data"),
        (["--set", "nothing"], "is neither locomo nor beam, nor a file"),
        (["--set", "TALK", "--systems", "nobody"], "nobody"),
        (["--set", "TALK", "--via", "telepathy"], "is no form; there are plaintext"),
        (["--set", "TALK", "--via", "activation"], "needs a model that runs here, which extractive does not"),
        (["--set", "TALK", "--judge", "extractive"], "reads no answers"),
        (["--set", "TALK", "--prices", "cheap"], "are not two numbers"),
        (["--set", "TALK", "--key", "TALK"], "a list of {sample_id, category, question"),
        (["--set", "TALK", "--exam", "TALK", "--judge", "memos-small"], "is no examination"),
        (["--set", "TALK", "--model", "/no/such/model"], "/no/such/model"),
    ],
)
def test_bad_input_is_named_before_anything_long(tmp_path: Path, given: list[str], said: str) -> None:
    file = str(talk(tmp_path))
    arguments = [file if part == "TALK" else part for part in given]
    result = CliRunner().invoke(app, ["bench", "qa", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code and said in " ".join(result.output.split()), result.output
    assert not (tmp_path / "out/shown").exists()


def test_data_without_evidence_has_no_oracle(tmp_path: Path) -> None:
    bare = talk(tmp_path, [(q, a, [], kind) for q, a, _, kind in ASKED])
    report = run(ask(bare, tmp_path / "out"))
    assert {row["system"] for row in report["rows"]} == set(BASELINES) - {"oracle"}
    assert all(row["evidence_recall"] is None for row in report["rows"])
    with pytest.raises(InputError, match="names no evidence"):
        run(ask(bare, tmp_path / "other", systems=("oracle",)))


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    file = talk(tmp_path)
    run(ask(file, tmp_path / "out"))
    with pytest.raises(InputError, match="holds a run with another budget; go on with the same, or give another --out"):
        run(ask(file, tmp_path / "out", budget=100))
