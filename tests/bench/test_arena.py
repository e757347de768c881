"""The arena: systems side by side on one small dialogue, cut off and gone on with, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos.bench import arena
from memos.bench.arena import all_systems, bench_arena, named_systems
from memos.bench.arena_report import COLUMNS, arena_page, arena_table
from memos.config import Config, CuratorsConfig, ModelConfig
from memos.errors import InputError
from memos.interface.doors.cli.app import app
from tests.bench.test_bench import DIALOGUE, Shown

SYSTEMS = ["memos", "mem0", "recency"]


def test_systems_are_measured_on_the_same_turns_and_a_cut_off_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, part = tmp_path / "talks.json", tmp_path / "report.json.part"
    file.write_text(json.dumps(DIALOGUE))

    def stopped(name: str, *given: object) -> dict[str, object]:
        if name == "recency":
            raise KeyboardInterrupt
        return measured(name, *given)  # type: ignore[arg-type]

    measured = arena._measured
    monkeypatch.setattr(arena, "_measured", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench_arena(SYSTEMS, "locomo", file, None, Config(), part, Shown())
    done = json.loads(part.read_text())["rows"]
    assert list(done) == ["memos", "mem0"]

    monkeypatch.setattr(arena, "_measured", measured)
    report = bench_arena(SYSTEMS, "locomo", file, None, Config(), part, Shown())
    assert report["rows"][:2] == [done["memos"], done["mem0"]] and not part.exists()
    ours, mem0, recency = report["rows"]
    assert ours["recall@10"] == ours["recall@budget"] == 1 and mem0["recall@10"] > 0
    assert ours["writer_calls_per_turn"] == 0 < mem0["writer_calls_per_turn"] <= 4 < mem0["writer_tokens_per_turn"]
    assert ours["memories"] == 4 < mem0["memories"] and recency["ndcg@10"] < ours["ndcg@10"]
    assert mem0["growth"] == sorted(mem0["growth"]) and len(mem0["growth"]) == 4
    assert all(row["turns_lost"] == row["failed"] == 0 < row["tokens_shown_mean"] for row in report["rows"])

    assert arena_table(report).row_count == 3
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- arena -->\nold\n<!-- end of arena -->\nAfter.\n")
    arena_page([report], page)
    written = page.read_text()
    assert written.startswith("Before.\n") and written.endswith("After.\n") and "old" not in written
    assert all(heading in written for _, heading in COLUMNS) and page.with_suffix(".png").stat().st_size > 1000
    arena_page([report | {"set": "another"}], page)
    assert page.read_text().count(f"### {report['set']}:") == page.read_text().count("### another:") == 1
    page.write_text("another page")
    with pytest.raises(InputError, match="is a page without <!-- arena -->"):
        arena_page([report], page)
    assert page.read_text() == "another page"


def test_a_model_has_written_before_anything_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(DIALOGUE))
    config = Config(model=ModelConfig(path="shape:tiny"), curators=CuratorsConfig(writer="local", seconds=600))
    [row] = bench_arena(["mem0"], "locomo", file, None, config, None, Shown())["rows"]
    assert row["writer_calls_per_turn"] > 0 and row["turns_lost"] == row["failed"] == 0


def test_the_command_writes_its_report_and_its_page(tmp_path: Path) -> None:
    file, report, page = tmp_path / "talks.json", tmp_path / "arena.json", tmp_path / "page.md"
    file.write_text(json.dumps(DIALOGUE))
    given = f"bench arena --set locomo --data {file} --systems plain-rag,openai-memory --json {report} --page {page}"
    done = CliRunner().invoke(app, given.split())
    assert done.exit_code == 0 and "plain-rag" in done.stdout, done.output
    assert [row["system"] for row in json.loads(report.read_text())["rows"]] == ["plain-rag", "openai-memory"]
    assert "| openai-memory |" in page.read_text()


def test_systems_are_named_or_all() -> None:
    assert all_systems()[0] == "memos" and {"mem0", "plain-rag"} <= {*all_systems()}
    assert named_systems("mem0, memos,mem0") == ["mem0", "memos"]
    with pytest.raises(InputError, match="there is no policy 'mem1'"):
        named_systems("memos,mem1")
    with pytest.raises(InputError, match="names no system"):
        named_systems(" , ")
