"""Documents and traces in a vault: found, believed and refused as a whole; by the kernel and on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cube import Trust
from memos.errors import InputError
from memos.interface.doors.cli.app import app
from memos.operation.life.knowledge import text_of
from tests.plugins.documents.pdfs import pdf

TRACE = """{"role": "user", "content": "Will it rain in Oslo tomorrow?"}
{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": "{}"}}]}
{"role": "tool", "tool_call_id": "a", "content": "3 mm"}
{"call": "book", "arguments": {"table": 4}, "error": "the restaurant is closed", "task": "Book a table for Friday"}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("vault")) as kernel:
        yield kernel


def test_a_call_of_a_tool_is_found_by_its_task(kernel: MemOS, tmp_path: Path, ada: str) -> None:
    (tmp_path / "trace.jsonl").write_text(TRACE)
    kernel.within(ada).add("Mira has a table of oak.")
    kernel.within(ada).add(tmp_path / "trace.jsonl")
    for task, said in (("how will the weather in Oslo be", "3 mm"), ("reserve a restaurant for Friday", "is closed")):
        best = kernel.within(ada).search(task, kinds=["tool-trace"])[0].cube
        assert said in best.text and best.header.trust is Trust.TOOL


def test_a_document_is_kept_whole_or_not_at_all(kernel: MemOS, tmp_path: Path, ada: str) -> None:
    table = tmp_path / "cities.csv"
    table.write_text("city,people\nOslo,709000\nRome\n")
    with pytest.raises(InputError, match=r"cities.csv, line 3: a row of 1 cells"):
        kernel.within(ada).add(table)
    assert kernel.within(ada).memories() == []
    table.write_text("city,people\nOslo,709000\nRome,2749000\n")
    kept = kernel.within(ada).add(table)
    assert [c.text for c in kept] == ["city = Oslo; people = 709000.", "city = Rome; people = 2749000."]
    assert {c.header.trust for c in kept} == {Trust.DOCUMENT}
    assert kernel.within(ada).search("How many live in Rome?")[0].cube == kernel.within(ada).get(kept[1].id)


def test_the_command_takes_statements_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("letter.pdf").write_bytes(pdf("Mira lives in Lisbon."))
    Path("talk.jsonl").write_text('{"role": "system", "content": "Be brief."}')
    done = CliRunner().invoke(app, ["add", "Tom lives in Oslo.", "letter.pdf", "talk.jsonl", "--vault", "v"])
    assert done.exit_code == 0, done.output
    told = done.output.splitlines()
    assert [line.partition("  ")[2] for line in told[:2]] == ["Tom lives in Oslo.", "Mira lives in Lisbon."]
    assert told[2].startswith("talk.jsonl: nothing in it is worth keeping")
    gone = CliRunner().invoke(app, ["add", "gone.pdf", "--vault", "v"])
    assert gone.exit_code == 1 and "gone.pdf: no such file" in gone.stderr


@pytest.mark.parametrize("role", ["assistant", "ASSISTANT ", "model", "ai", "bot", "ChatGPT"])
def test_what_an_assistant_says_is_nothing_about_the_user(tmp_path: Path, role: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        [kept] = memos.add([{"role": role, "content": "I live in Oslo."}])
        assert (kept.header.role, kept.header.speaker) == ("assistant", "Assistant")
        assert not text_of(kept).facts and kept.header.trust is Trust.MODEL


def test_a_human_is_the_user(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        [kept] = memos.add([{"role": "human", "content": "I live in Oslo."}])
        assert (kept.header.role, kept.header.speaker) == ("user", "User")
        assert text_of(kept).facts
