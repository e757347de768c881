"""The report of a GPU, tried without one: what fits, what is made once, and what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gpu_report
import pytest
from gpu_report import COLUMNS, CONTEXTS, QUERIES, SHAPES, Job, fitted, jobs, make_all, shape_bytes, tables, write

from memos.bench.dialogues import read

H200, GB = int(139.8 * 2**30), 10**9


def job(model: str, bench: str = "ttft") -> Job:
    every = jobs(SHAPES, CONTEXTS, QUERIES, False, Path("out"))
    return next(one for one in every if one.bench == bench and one.model == model)


def test_every_benchmark_has_a_table_and_the_whole_is_tried_with_a_tiny_shape() -> None:
    assert {one.bench for one in jobs(SHAPES, CONTEXTS, QUERIES, False, Path())} == COLUMNS.keys()
    tried = {one.bench for one in jobs(["tiny"], (64,), (8,), True, Path())}
    assert tried == COLUMNS.keys() - {"promote"}  # which takes a minute on a CPU, and needs a trained model


@pytest.mark.parametrize(
    "weights, contexts, why",
    [
        (16 * GB, (583, 2773, 6064), ""),
        (141 * GB, (583, 2773), "without a context of 6,064: 141 GB of weights leave room for KV of"),
        (146 * GB, (), "does not fit: 146 GB of weights leave room for KV of"),
    ],
)
def test_what_does_not_fit_is_left_out_before_it_is_loaded(weights: int, contexts: tuple[int, ...], why: str) -> None:
    fits, told = fitted(job("shape:llama-3-70b"), H200, (weights, 327_680))
    words = fits.options if fits else ()
    assert tuple(int(words[n + 1]) for n, word in enumerate(words) if word == "--context") == contexts
    assert told.startswith(why) and bool(told) == bool(why)
    whole = fitted(job("shape:llama-3-70b", "kv-io"), H200, (weights, 327_680))[0]
    assert (whole is None) == (not contexts)


def test_the_bytes_of_a_shape_are_those_of_its_weights_and_its_kv() -> None:
    assert shape_bytes("shape:tiny") == (688_768, 512)
    assert shape_bytes("memos-small") == (0, 0)


def test_what_is_there_is_not_made_again_and_what_fails_is_named(tmp_path: Path) -> None:
    there, wrong = Job("ttft", "shape:tiny"), Job("nothing", "shape:tiny")
    (tmp_path / there.file).write_text("{}", "utf-8")
    notes = make_all([there, wrong], tmp_path, 1, H200, 4)
    assert (tmp_path / there.file).read_text("utf-8") == "{}"
    assert list(notes) == [wrong.file] and "No such command 'nothing'" in notes[wrong.file]
    assert make_all([wrong], tmp_path, 0, H200, 4) == {wrong.file: "no time left; run this again to go on"}
    assert not (tmp_path / wrong.file).exists()


def test_the_page_has_a_table_of_each_report_that_is_there(tmp_path: Path) -> None:
    ttft = [
        {"context": 64, "query": 8, "tier": tier, "full_ms": 9.0, "reuse_ms": 2.0, "floor_ms": 1.0, "ours_ms": ms}
        for tier, ms in (("host", 1.4), ("disk", 3.6))
    ]
    forms = [
        {"context": 64, "form": form, "tier": "", "level": "", "ttft_ms": 9.0, "bytes": 1234, "build_s": 0.0}
        | {"break_even": uses, "per_day": uses}
        for form, uses in (("text", None), ("KV", 2.0))
    ]
    made = [Job("ttft", "shape:tiny"), Job("recommend", "shape:tiny"), Job("kv-io", "shape:tiny")]
    (tmp_path / made[0].file).write_text(json.dumps({"rows": ttft}), "utf-8")
    (tmp_path / made[1].file).write_text(json.dumps({"rows": forms, "sentences": ["KV pays.", "So it does."]}), "utf-8")
    page = "\n".join(tables(tmp_path, made))
    assert "| model | context | query | full_ms | reuse_ms | floor_ms | ours_ms, host | ours_ms, disk |" in page
    assert "| tiny | 64 | 8 | 9 | 2 | 1 | 1 | 4 |" in page
    assert "| tiny | 64 | text |  |  | 9.0 | 1,234 | 0.000 |  |  |" in page
    assert "`memos recommend`" in page and "On tiny: KV pays. So it does." in page and "kv-io" not in page


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    docs = tmp_path / "page.md"
    docs.write_text("before\n<!-- figures: gpu -->\nold\n<!-- /figures -->\nafter\n", "utf-8")
    write(docs, r"new \1")
    assert docs.read_text("utf-8") == "before\n<!-- figures: gpu -->\nnew \\1\n<!-- /figures -->\nafter\n"


def test_the_conversation_of_the_mechanics_is_one_that_can_be_read(tmp_path: Path) -> None:
    gpu_report.write_conversation(tmp_path / "data.json")
    (conversation,) = read(tmp_path / "data.json", "beam")
    assert len(conversation.turns) == gpu_report.QA_FACTS
    assert conversation.asked and all(question.evidence and question.answer for question in conversation.asked)


@pytest.mark.slow
def test_all_of_it_runs_without_a_gpu_and_goes_on_where_it_was(tmp_path: Path) -> None:
    small = ("--shape", "tiny", "--context", "64", "--query", "8")
    command = [sys.executable, gpu_report.__file__, "--out", str(tmp_path / "out"), "--docs", str(tmp_path / "page.md")]
    env = os.environ | {"PYTHONPATH": str(gpu_report.ROOT)}
    first = subprocess.run([*command, *small, "--minutes", "0.2"], capture_output=True, text=True, check=True, env=env)
    assert "no time left" in first.stdout
    subprocess.run([*command, *small, "--minutes", "30"], capture_output=True, text=True, check=True, env=env)
    made = {path.stem for path in (tmp_path / "out").glob("*_tiny.json")}
    page = (tmp_path / "page.md").read_text("utf-8")
    assert made == {f"{one.bench}_tiny" for one in jobs(["tiny"], (64,), (8,), True, Path())}
    assert "Left out" not in page and "0 without an answer" in page
    assert all(f"{bench}`:" in page for bench in COLUMNS.keys() - {"promote"})
