"""The papers' tables: what is printed there, what stands beside it, and MemoryBank's evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos.bench.dialogues import PROBING, read
from memos.bench.qa import gvd
from memos.bench.qa.gvd import read_labels
from memos.bench.qa.judge import Examination
from memos.bench.qa.papers import Paper, paper_tables, read_paper
from memos.bench.qa.report import own_figure
from memos.errors import InputError
from memos.interface.doors.cli.app import app
from tests.chat_server import Said, chat_server

FOLDER = Path(__file__).parents[3] / "configs" / "papers"
TABLES = sorted(FOLDER.glob("*.yaml"))
TALK = {
    "speaker_a": "Mira",
    "speaker_b": "Jon",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Mira", "dia_id": "D1:1", "text": "I moved to Lisbon last week and found a flat near the river."},
        {"speaker": "Jon", "dia_id": "D1:2", "text": "Great! Yesterday I ran my first marathon in Porto."},
    ],
}
ASKED = [
    {"question": "Where did Mira move?", "answer": "Lisbon", "evidence": ["D1:1"], "category": 4},
    {"question": "When did Jon run a marathon?", "answer": "7 May 2023", "evidence": ["D1:2"], "category": 2},
]
USERS = {
    "Nora": {
        "name": "Nora",
        "history": {
            "2024-03-01": [{"query": "Can you name a film?", "response": "Try the film Amelie."}],
            "2024-03-02": [{"query": "I saw two herons at Elm Lake.", "response": "That sounds calm."}],
        },
    }
}
PROBED = [
    '"Which film did you recommend to me?"',
    {"question": "What did I see at Elm Lake?", "answer": "two herons", "evidence": ["2024-03-02:1"]},
]


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([{"sample_id": "c1", "conversation": TALK, "qa": ASKED}]), "utf-8")
    return file


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "probing_questions_en.jsonl").write_text(json.dumps({"Nora": PROBED}) + "\n", "utf-8")
    file = tmp_path / "memory_bank_en.json"
    file.write_text(json.dumps(USERS), "utf-8")
    return file


def run(table: Path, data: Path, out: Path, *given: str) -> tuple[dict[str, Any], str]:
    json_file = out / "report.json"
    command = ["bench", "paper", str(table), "--data", str(data), "--json", str(json_file), "--out", str(out / "run")]
    done = CliRunner().invoke(app, [*command, *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(json_file.read_text("utf-8")), done.stdout


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_table_is_read_and_says_what_differs(table: Path) -> None:
    paper = read_paper(table)
    assert paper.notes and f"configs/papers/{table.name}" in table.read_text("utf-8").splitlines()[0]
    assert all(one["source"] and one["category"] for one in paper.published())


@pytest.mark.parametrize(
    "table, name, column, printed",
    [
        ("memoryos-table2", "MemoryOS", "temporal", {"f1_words": 0.2002, "bleu1": 0.1652}),
        ("memoryos-table2", "A-Mem (own run)", "open-domain", {"f1_words": 0.3413, "bleu1": 0.2773}),
        ("memoryos-table2", "MemoryBank", "single-hop", {"bleu1": 0.0477}),
        ("memoryos-efficiency", "MemGPT", "all", {"tokens_mean": 16977, "calls": 4.3}),
        ("memos-ttft", "Qwen2.5-72B", "2773+167", {"build_s": 0.71, "kv_s": 0.23, "direct_s": 0.82, "saved": 0.716}),
        ("memos-locomo", "mem0, Omni", "overall", {"judged": 0.777}),
    ],
)
def test_what_is_printed_stands_in_the_report(table: str, name: str, column: str, printed: dict[str, float]) -> None:
    published = read_paper(FOLDER / f"{table}.yaml").published()
    [cell] = [one for one in published if (one["name"], one["paper_category"]) == (name, column)]
    others = ("name", "system", "category", "paper_category", "source")
    assert {measure: value for measure, value in cell.items() if measure not in others} == printed


def test_a_column_that_the_paper_misnames_is_held_against_the_category_that_it_is() -> None:
    published = read_paper(FOLDER / "memoryos-table2.yaml").published()
    named = {one["paper_category"]: one["category"] for one in published}
    assert named == {
        "single-hop": "multi-hop",
        "multi-hop": "temporal",
        "temporal": "open-domain",
        "open-domain": "single-hop",
    }


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"measures": ["f2"]}, "'f2' is not a measure"),
        ({"columns": [{"category": "hard"}]}, "'hard' is not a category"),
        ({"rows": [{"name": "x", "system": "mem0"}]}, "'mem0' is not a system that is run"),
        ({"rows": [{"name": "x", "published": {"temporal": {"bleu1": 1}}}]}, "'bleu1' is not a measure of this table"),
        ({"run": {"kind": "qa", "set": "locomo", "systems": ["nobody"]}}, "nobody"),
        ({"rowz": []}, "rowz"),
    ],
)
def test_a_table_with_a_slip_is_refused(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    right = {
        "title": "a",
        "paper": "b",
        "table": "c",
        "run": {"kind": "qa", "set": "locomo"},
        "measures": ["f1"],
        "columns": [{"category": "temporal"}],
        "rows": [],
    }
    (tmp_path / "x.yaml").write_text(json.dumps(right | changed), "utf-8")
    with pytest.raises(InputError, match=why):
        read_paper(tmp_path / "x.yaml")


def test_a_cell_has_ones_own_figure_before_the_printed_one() -> None:
    paper = read_paper(FOLDER / "memoryos-efficiency.yaml")
    row = {"system": "memgpt", "via": "plaintext", "questions": 4, "failed": 0, "tokens_mean": 1500.0, "model_calls": 4}
    report = {
        "rows": [row | {"category": "temporal"}, row | {"category": "adversarial", "tokens_mean": 900.0}],
        "totals": [{"system": "memgpt", "turns": 20, "writer_calls": 30, "writer_tokens": 5000}],
        "paper": {"notes": []},
    }
    assert own_figure(report, "memgpt", "all", "calls") == 1 + 3  # an answer, and one of ten exchanges
    [cells] = [cells for cells in _rows(paper, report) if cells[0] == "MemGPT"]
    assert cells == ["MemGPT", "1,200 / 16,977", "4.0 / 4.3", "500 / –"]


def _rows(paper: Paper, report: dict[str, Any]) -> list[list[str]]:
    table = paper_tables(paper, report)[0]
    return [list(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)]


def test_the_mean_of_all_leaves_out_what_nothing_answers() -> None:
    of = {"system": "memos", "via": "plaintext", "failed": 0}
    rows = [
        of | {"category": "temporal", "questions": 3, "f1": 0.5},
        of | {"category": "single-hop", "questions": 1, "f1": 0.1},
        of | {"category": "adversarial", "questions": 9, "f1": 1.0},
    ]
    assert own_figure({"rows": rows}, "memos", "all", "f1") == pytest.approx(0.4)
    assert own_figure({"rows": rows}, "memos", "all", "judged") is None


def test_memorybanks_users_are_read_as_they_are_published(users: Path) -> None:
    [nora] = read(users, "gvd", evidence=False)
    assert [(name, turn.speaker) for name, turn in nora.turns.items()] == [
        ("2024-03-01:1", "Nora"),
        ("2024-03-01:2", "Assistant"),
        ("2024-03-02:1", "Nora"),
        ("2024-03-02:2", "Assistant"),
    ]
    plain, own = nora.asked
    assert (plain.text, plain.answer, plain.category) == ("Which film did you recommend to me?", "", PROBING)
    assert own.evidence == ("2024-03-02:1",)
    users.with_name("probing_questions_en.jsonl").unlink()
    with pytest.raises(InputError, match="put the questions beside memory_bank_en.json"):
        read(users, "gvd", evidence=False)


@pytest.mark.parametrize(
    "reply, labels",
    [
        ("1 0.5 1", {"retrieval": 1.0, "correctness": 0.5, "coherence": 1.0}),
        ("I weigh 3 things.\nretrieval: 0, correctness: 0, coherence: 0.5", {"retrieval": 0.0, "coherence": 0.5}),
        ("1 1", {}),
        ("1 0.7 1", {}),
        ("0.5 1 1", {}),
        ("10 1 1", {}),
        ("", {}),
    ],
)
def test_labels_are_read_or_are_none(reply: str, labels: dict[str, float]) -> None:
    read = read_labels(reply)
    assert labels.items() <= read.items() and bool(labels) == bool(read)


class Judged:
    """Gives the same labels to each, and counts what it is asked."""

    name = "a judge"

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, prompts: Sequence[str]) -> list[str]:
        self.asked += len(prompts)
        assert all("2024-03-02 Nora: I saw two herons" in prompt for prompt in prompts)
        return ["0 0.5 1"] * len(prompts)


@pytest.mark.slow
def test_what_people_would_label_a_judge_labels_once_it_has_passed(
    users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "gvd.yaml"
    table.write_text(
        (FOLDER / "gvd.yaml").read_text("utf-8").replace("tim, memgpt, a-mem, memoryos", "a-mem, memoryos")
    )
    judge, passed = Judged(), Examination("a judge", "", 1, 1, 1, 1, 0, True, "")
    table.write_text(_only(table.read_text("utf-8"), "TiM", "MemGPT"), "utf-8")
    monkeypatch.setattr(gvd, "judge_of", lambda *_: (judge, passed))
    report, printed = run(table, users, tmp_path, "--judge", "somebody")
    [row] = [row for row in report["rows"] if row["system"] == "memos"]
    # one question by its evidence, one by the judge
    assert (row["questions"], row["retrieval"], row["correctness"], row["coherence"]) == (2, 0.5, 0.5, 1.0)
    assert "0.500 / 0.763" in printed
    before = judge.asked
    run(table, users, tmp_path, "--judge", "somebody")
    assert judge.asked == before == sum(row["questions"] for row in report["rows"])


@pytest.mark.slow
def test_memorybanks_questions_too_are_asked_within_the_context_that_is_named(users: Path, tmp_path: Path) -> None:
    with chat_server(lambda n, request: Said("two herons")) as (url, _):
        report, _ = run(FOLDER / "gvd.yaml", users, tmp_path, "--model", url, "--context", "130")
    assert sum(row["left_out"] for row in report["rows"]) > 0 == len(report["failures"])


def _only(text: str, *without: str) -> str:
    return "\n".join(line for line in text.splitlines() if not any(f"name: {name}" in line for name in without))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memoryos-table2", "memoryos-ablation", "memoryos-efficiency", "memos-locomo"])
def test_a_table_runs_to_its_end_with_the_packaged_model(name: str, locomo: Path, tmp_path: Path) -> None:
    report, printed = run(FOLDER / f"{name}.yaml", locomo, tmp_path, "--model", "memos-small")
    paper = read_paper(FOLDER / f"{name}.yaml")
    assert report["model"] == "memos-small" and report["published"] == paper.published()
    assert all(row["failed"] == 0 for row in report["rows"])
    assert all(row.name in printed for row in paper.rows)


@pytest.mark.slow
def test_the_first_token_is_measured_on_the_datas_own_text(locomo: Path, tmp_path: Path) -> None:
    table = tmp_path / "ttft.yaml"
    table.write_text((FOLDER / "memos-ttft.yaml").read_text("utf-8").replace("[583, 2773, 6064]", "[583, 6064]"))
    table.write_text(table.read_text("utf-8").replace("[167, 303, 953]\n", "[167]\n  repeats: 1\n"), "utf-8")
    report, printed = run(table, locomo, tmp_path, "--model", "memos-small")
    assert [(row["context"], row["query"], row["equal"]) for row in report["rows"]] == [(583, 167, True)] * 2
    assert "71.3%" in printed and "6064+167" in printed


def test_the_first_token_of_an_endpoint_is_refused(locomo: Path) -> None:
    command = ["bench", "paper", str(FOLDER / "memos-ttft.yaml"), "--data", str(locomo), "--model", "http://x"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code != 0 and "runs here" in " ".join(done.output.split())
