"""Tiny models of every architecture, through what users call, against transformers' own forward of the whole text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from memos.bench import doctor
from memos.bench.architectures import ARCHITECTURES, every, tiny
from memos.config import ModelConfig
from memos.errors import ModelNotFound
from memos.infrastructure.host.host import Host
from memos.interface.doors.cli.app import app

# each was once wrong without a word, or refused for no reason
FOUND = {
    "llama, rope longrope": "composable",  # an answer across its original length
    "mistral, wide sliding window": "composable",  # padding between KV and question narrows the window
    "gemma4, shared KV": "composable",  # takes another way where attention is not called sdpa
    "gemma2": "composable",  # has no sdpa
    "gpt-j": "composable",  # keeps no frequencies
    "llama4, chunked attention": "exact",  # exact beyond a chunk
    "camembert": "exact",  # its positions begin behind the padding's
    "moshi": "exact",  # its own cache forgets what it still looks at
    "rwkv": "refused",  # has no cache to go on from
    "jamba, hybrid": "exact",  # forgets its state where it reads several tokens after it
    "minimax": "refused",  # has a cache of its own
}
# one of each verdict at once; `memos doctor --architectures`, a slow test too, has all
AT_ONCE = ("mistral, wide sliding window", "gemma2", "camembert", "minimax")


@pytest.fixture(scope="module")
def small() -> Host:
    return Host.load(ModelConfig())


def show(what: str, done: int, of: int) -> None: ...


@pytest.mark.parametrize("name", [n if n in AT_ONCE else pytest.param(n, marks=pytest.mark.slow) for n in FOUND])
def test_what_an_architecture_answers_is_right_or_refused(name: str) -> None:
    (row,) = doctor.examine_architectures(show, names=[name])["rows"]
    assert row["verdict"] == FOUND[name]
    assert not row["wrong"] and not row["failed"] and row["greedy_equal"]
    assert row["checks"] >= {"composable": 23, "exact": 18, "refused": 8}[FOUND[name]]
    assert (row["exact_diff"] is None) == (FOUND[name] == "refused")
    assert (row["composed_diff"] is None) == (FOUND[name] != "composable")


def test_another_model_is_seen_to_be_another(small: Host, tmp_path: Path) -> None:
    for seed in (0, 1):
        tiny("llama", seed, len(small.tokenizer)).save_pretrained(tmp_path / str(seed))
    small.tokenizer.save_pretrained(tmp_path / "0")
    host = Host.load(ModelConfig(path=str(tmp_path / "0"), template="plain"))
    found = doctor._Findings("llama")
    doctor._Comparison(host, AutoModelForCausalLM.from_pretrained(tmp_path / "1").eval(), found).run()
    assert len(found.wrong) == found.checks == 24 and found.equal is False


def test_attention_that_a_model_does_not_have_is_named_with_the_way_out(small: Host, tmp_path: Path) -> None:
    tiny("gemma2", vocabulary=len(small.tokenizer)).save_pretrained(tmp_path)
    small.tokenizer.save_pretrained(tmp_path)
    assert Host.load(ModelConfig(path=str(tmp_path))).attention == "eager"
    with pytest.raises(ModelNotFound, match="Gemma2ForCausalLM does not support .* set model.attention to auto"):
        Host.load(ModelConfig(path=str(tmp_path), attention="sdpa"))


def test_what_there_is_no_architecture_of_is_named() -> None:
    done = CliRunner().invoke(app, ["doctor", "--architectures", "--only", "lama"])
    assert done.exit_code == 1 and "lama" in done.stderr and "llama" in done.stderr


@pytest.mark.slow
def test_no_architecture_of_transformers_is_silently_wrong(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = CliRunner().invoke(app, ["doctor", "--architectures", "--json", str(path)])
    assert done.exit_code == 0, done.output
    report = json.loads(path.read_text("utf-8"))
    assert len(report["rows"]) >= 150 and len(report["rows"]) + len(report["unmade"]) == len(every())
    assert not any(row["silently_wrong"] or row["failed"] for row in report["rows"])
    assert ARCHITECTURES.keys() <= {row["architecture"] for row in report["rows"]}
