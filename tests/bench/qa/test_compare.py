"""Two runs compared: what changed, by how much, and which questions flipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from typer.testing import CliRunner

from memos.bench.qa.cli import commands
from memos.bench.qa.compare import compare
from memos.errors import InputError
from tests.bench.qa.invented_run import HOSTILE, invented

LIVES, MOVED = "Where does Ana live?", "When did Ana move?"
CHANGED = {
    ("memos", LIVES): "I do not know",
    ("none", LIVES): HOSTILE,
    ("oracle", MOVED): "7 May, 2023",
    ("plain-rag", MOVED): "!timed out",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folders = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    invented(folders[0])
    invented(folders[1], CHANGED, model="larger", systems=("memos", "none", "full-context", "plain-rag", "oracle"))
    return folders


def compared(a: Path, b: Path) -> dict[str, Any]:
    return compare(a, b, 0, lambda *_: None)


def test_two_runs_are_compared_and_what_flipped_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    file, page = tmp_path / "changed.json", tmp_path / "pages" / "changed.html"
    given = ["compare", str(runs[0]), str(runs[1] / "report.json"), "--json", str(file), "--html", str(page)]
    done = CliRunner().invoke(commands, given, terminal_width=80)
    assert done.exit_code == 0, done.exception
    found = json.loads(file.read_text())
    assert [one["what"] for one in found["changed"]] == ["systems", "model"]
    assert found["changed"][1] == {"what": "model", "a": "told", "b": "larger"}

    rows = {(row["system"], row["category"]): row for row in found["rows"]}
    assert list(dict.fromkeys(system for system, _ in rows)) == ["none", "full-context", "plain-rag", "memos", "oracle"]
    single, every = rows["memos", "single-hop"], rows["memos", "answerable"]
    assert (single["a"]["f1"], single["b"]["f1"], single["difference"], single["pairs"]) == (1, 0, -1, 1)
    assert (every["a"]["f1"], every["b"]["f1"], every["difference"]) == pytest.approx((0.7, 0.2, -0.5))
    assert every["low"] <= every["difference"] <= every["high"] and 0 < every["p"] <= 1
    lost = rows["plain-rag", "temporal"]
    assert lost["pairs"] == 0 and lost["difference"] is None and lost["b"]["f1"] is None and lost["b"]["failed"] == 1

    flips = [(one["system"], one["question"], one["kinds"]) for one in found["flips"]]
    assert flips == [
        ("memos", LIVES, ["right to wrong", "refused now"]),
        ("none", LIVES, ["right to wrong"]),
        ("oracle", MOVED, ["wrong to right"]),
        ("plain-rag", MOVED, ["failed now"]),
    ]
    counts = {"right to wrong": 2, "wrong to right": 1, "refused now": 1, "failed now": 1}
    assert {kind: count for kind, count in found["flip_counts"].items() if count} == counts
    assert found["flips"][2]["b"]["answer"] == "7 May, 2023" and found["flips"][2]["corrected"] == "6 May 2023"

    assert "right to wrong, refused now: memos" in " ".join(done.output.split()) and "-0.500" in done.output
    parsed = BeautifulSoup(page.read_text(), "html.parser")
    assert parsed.select("script, img") == [] and HOSTILE in parsed.get_text() and len(parsed.select(".question")) == 4


def test_nothing_differs_between_a_run_and_itself(runs: tuple[Path, Path]) -> None:
    found = compared(runs[1], runs[1])
    assert found["changed"] == found["flips"] == [] and {row["difference"] for row in found["rows"]} == {0, None}


def test_figures_are_over_the_questions_that_both_have(runs: tuple[Path, Path], tmp_path: Path) -> None:
    invented(tmp_path / "few", systems=("memos",))
    found = compared(runs[0], tmp_path / "few")
    assert found["questions"] == 3 and {row["system"] for row in found["rows"]} == {"memos"}
    assert found["only_a"] == ["full-context", "none", "oracle", "plain-rag"] and found["only_b"] == []


@pytest.mark.parametrize(
    "harm, told",
    [
        ("none there", "holds no run of `memos bench qa`"),
        ("not finished", "has not come to its end .* go on with the same `memos bench qa` and --out"),
        ("answers lost", "has 14 of 15 answers; go on"),
        ("broken", "cannot be read .* run it again"),
        ("other data", r"are of different data \(dddddddddddd, eeeeeeeeeeee\); compare runs of the same --data"),
        ("other systems", "share no question .* the one has none, .*, the other light"),
    ],
)
def test_runs_that_cannot_be_compared_are_named(runs: tuple[Path, Path], tmp_path: Path, harm: str, told: str) -> None:
    other = tmp_path / "other"
    if harm != "none there":
        invented(other, **({"data": "e" * 64} if harm == "other data" else {}))
    match harm:
        case "not finished":
            (other / "report.json").unlink()
        case "answers lost":
            next(other.glob("answers/memos/*/*/*.json")).unlink()
        case "broken":
            next(other.glob("answers/memos/*/*/*.json")).write_text("{}")
        case "other systems":
            plan = json.loads((other / "plan.json").read_text()) | {"systems": ["light"]}
            (other / "plan.json").write_text(json.dumps(plan))
            for file in other.glob("answers/*/*/*/*.json"):
                record = json.loads(file.read_text())
                renamed = {"id": "light" + record["id"], "system": "light"}
                file.write_text(json.dumps(record | renamed))
    with pytest.raises(InputError, match=told):
        compared(runs[0], other)
