"""The page of a run: it stands alone, shows every question, and runs nothing that was said."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
from rich.console import Console

from memos.bench.qa.page import write_page
from memos.bench.qa.records import Record
from memos.bench.qa.tables import qa_tables
from tests.bench.qa.invented_run import HOSTILE, MEMORIES, SYSTEMS, invented

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIVES, MOVED, CAT = "Where does Ana live?", "When did Ana move?", "Which cat has Bo?"
PUBLISHED = [
    {"name": "ours", "system": "memos", "category": "single-hop", "f1_words": 0.352, "source": "a paper & its table"},
    {"name": "theirs", "system": None, "category": "single-hop", "bleu1": 0.301, "source": "a paper & its table"},
]
EXAMINATION = {"judge": "strict", "accepts_right": 0.975, "believed": False, "why": "it rejects 40.0% of vague answers"}
Measured = tuple[dict[str, Any], list[Record], Path]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A run with its page: a hostile answer of `none`, and no answer of `plain-rag` to one question."""
    folder = tmp_path_factory.mktemp("run")
    report, records = invented(folder, {("none", LIVES): HOSTILE, ("plain-rag", MOVED): "!timed out after 120 s"})
    report |= {"published": PUBLISHED, "examination": EXAMINATION, "set": f"set {HOSTILE}"}
    write_page(report, records, folder, judged={"memos/plaintext/conv-1/0000": True})
    return report, records, folder


@pytest.fixture(scope="module")
def page(measured: Measured) -> BeautifulSoup:
    return BeautifulSoup((measured[2] / "report.html").read_text("utf-8"), "html.parser")


def of_script(page: BeautifulSoup, where: str) -> Any:
    found = page.select_one(where)
    assert found is not None
    return json.loads(found.string or "")


def table(page: BeautifulSoup, title: str) -> dict[str, list[str]]:
    """The cells of each row, by its heading."""
    heading = next(one for one in page.select("h2") if one.get_text() == title)
    assert isinstance(heading.parent, Tag)
    rows = heading.parent.select("tbody tr")
    return {row.th.get_text(): [" ".join(c.get_text().split()) for c in row.select("td")] for row in rows if row.th}


def test_the_same_records_give_the_same_page_whatever_their_order_and_the_clock(
    measured: Measured, tmp_path: Path
) -> None:
    report, records, folder = measured
    slower = [r.model_copy(update={"answer": r.answer.model_copy(update={"ttft_ms": 9e3})}) for r in records]
    random.Random(0).shuffle(slower)
    shutil.copytree(folder / "shown", tmp_path / "shown")
    rows = random.Random(0).sample(report["rows"], len(report["rows"]))
    write_page({**report, "rows": rows}, slower, tmp_path, judged={"memos/plaintext/conv-1/0000": True})
    for name in ("report.html", "report.png"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_what_was_said_is_data_and_nothing_comes_from_elsewhere(page: BeautifulSoup) -> None:
    assert page.select("img, iframe, object, embed, base, form[action]") == []
    run = [one for one in page.select("script") if one.get("type") != "application/json"]
    assert len(run) == 1 and "document.title" not in (run[0].string or "")
    assert [one["href"] for one in page.select("[href]")] == ["data:,", "#page"] and page.select("[src]") == []
    policy = page.select_one("meta[http-equiv=Content-Security-Policy]")
    assert (
        policy is not None and "default-src 'none'" in policy["content"] and "script-src 'sha256-" in policy["content"]
    )
    assert page.title is not None and HOSTILE in str(page.title.string)
    answers = of_script(page, "#questions")["all"][0]["answers"]
    assert answers[0][0] == HOSTILE
    assert of_script(page, "script.conversation")["memories"][2][0] == f"Look: {HOSTILE}"


def test_each_measure_has_a_table_of_systems_and_categories(page: BeautifulSoup) -> None:
    f1 = table(page, "F1")
    assert list(f1) == list(SYSTEMS)
    assert f1["memos"] == [
        *("0.400 [0.400, 0.400] corrected 0.400", "1.000 [1.000, 1.000] corrected 1.000"),
        "1.000 [1.000, 1.000] corrected 1.000",
    ]
    assert f1["plain-rag"][0] == "– corrected –", "nothing was answered, which is not a 0"
    assert table(page, "Evidence shown")["memos"] == ["0.000", "1.000", "–"]
    assert table(page, "Refused")["memos"] == ["0.000", "0.000", "1.000"]
    assert table(page, "Tokens")["memos"] == ["40", "40", "40"] and table(page, "Calls")["plain-rag"] == ["0", "1", "1"]
    assert table(page, "Failed")["plain-rag"] == ["1", "0", "0"]
    assert table(page, "Beside memos")["none"][2].startswith("-0.5") and table(page, "Beside memos")["memos"][2] == "–"
    assert table(page, "Calibration")["memos"][-1] == "2"
    assert table(page, "Beside the published figures") == {
        "ours": ["single-hop", "F1", "0.352", "1.000", "a paper & its table"],
        "theirs": ["single-hop", "BLEU-1", "0.301", "–", "a paper & its table"],
    }
    assert "believed: no; why: it rejects 40.0% of vague answers" in page.get_text()
    assert "plain-rag, conv-1: When did Ana move? timed out after 120 s" in page.get_text()


def test_every_question_has_all_that_is_known_of_it_and_a_memory_stands_once(
    page: BeautifulSoup, measured: Measured
) -> None:
    questions, conversation = of_script(page, "#questions"), of_script(page, "script.conversation")
    assert [one["question"] for one in questions["all"]] == [LIVES, MOVED, CAT]
    asked = questions["all"][1]
    assert (asked["gold"], asked["corrected"], asked["evidence"]) == ("7 May 2023", "6 May 2023", ["D1:2"])
    answers = [dict(zip(questions["fields"], answer, strict=True)) for answer in asked["answers"]]
    assert answers[3] | {"bleu1": 0} == {
        **{"text": "in May", "failed": "", "f1": 0.4, "corrected": 0.4, "bleu1": 0, "refused": False, "recall": 0.0},
        **{"judged": None, "confidence": 0.75, "tokens": 40, "calls": 1, "left_out": 0},
    }
    assert answers[2]["failed"] == "timed out after 120 s" and answers[2]["f1"] is None
    assert dict(zip(questions["fields"], questions["all"][0]["answers"][3], strict=True))["judged"] is True
    assert conversation["found"]["memos"]["1"] == [0, 0.875, 2, 0.5] and conversation["found"]["none"]["1"] == []
    assert conversation["found"]["full-context"]["1"] == 3, "all of it is no list"
    written = (measured[2] / "report.html").read_text("utf-8")
    assert [written.count(memory.text) for memory in MEMORIES[:2]] == [1, 1]


def test_the_terminal_has_the_figures_in_80_characters_and_names_some_failures(measured: Measured) -> None:
    report = measured[0] | {"failures": [{**measured[0]["failures"][0], "question": f"[b]{n}"} for n in range(8)]}
    report["totals"] = [
        {**t, "beside_memos": {**t.get("beside_memos", {"difference": 0}), "p": 1e-4}} for t in report["totals"]
    ]
    console = Console(width=80, record=True)
    for one in qa_tables(report | {"set": "locomo"}):
        console.print(one)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    assert any(line.split()[:4] == ["memos", "0.400", "1.000", "1.000"] and "0.700 [" in line for line in lines)
    assert [line for line in lines if line.startswith("failed:")] == [
        f"failed: plain-rag, conv-1: '[b]{n}': timed out after 120 s" for n in range(5)
    ]
    assert sum(line.endswith("<0.001") for line in lines) == len(SYSTEMS), "no chance is 0"
    assert lines[-1].strip() == "and 3 more without an answer: report.json has all"


def test_many_long_categories_stand_in_tables_below_each_other(measured: Measured) -> None:
    names = [f"multi_session_reasoning_{n}" for n in range(7)]
    rows = [{**measured[0]["rows"][0], "category": name} for name in names]
    console = Console(width=80, record=True)
    for one in qa_tables(measured[0] | {"rows": rows, "failures": [], "set": "[red]beam.json"}):
        console.print(one)
    text = console.export_text()
    assert "…" not in text and text.count("answerable, 95 %") == 1 and "[red]beam.json" in text


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: `pip install playwright`")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; `apt-get install chromium` has it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.mark.slow
def test_a_question_opens_and_is_found_on_a_phone(browser: Any, measured: Measured) -> None:
    page, wrong = browser.new_page(color_scheme="dark", viewport={"width": 360, "height": 800}), list[str]()
    page.on("console", lambda told: wrong.append(told.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda sent: sent.url.startswith("file:") or wrong.append(sent.url))
    page.goto((measured[2] / "report.html").as_uri())
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(19, 20, 22)"
    first = page.locator(".question").first
    first.locator("summary").first.click()
    first.get_by_text("What memos showed: 2 memories").click()
    shown = first.locator(".hits").inner_text()
    assert "Ana · 2023-05-01 10:00 · score 0.875" in shown and "evidence" in shown and "onerror" in shown
    assert (
        "What full-context showed: all of it, 3 memories" in first.inner_text() and HOSTILE[:20] in first.inner_text()
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 360, "it scrolls sideways"

    def left(**chosen: str) -> list[str]:
        for name in ("category", "system", "outcome"):
            page.select_option(f"[name={name}]", label=chosen.get(name, "all" if name == "category" else "any"))
        page.fill("[name=words]", chosen.get("words", ""))
        return [text.splitlines()[0].strip() for text in page.locator(".question").all_inner_texts()]

    assert left() == [LIVES, MOVED, CAT]
    assert left(outcome="failed") == [MOVED] and left(outcome="failed", system="memos") == []
    assert left(outcome="refused") == [CAT] and left(category="temporal") == [MOVED]
    assert left(outcome="wrong", system="none") == [LIVES, MOVED] and left(words="lisbon") == [LIVES]
    assert page.title().startswith("Questions answered") and wrong == []
