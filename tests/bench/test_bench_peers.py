"""The benchmark beside peers: memos' own worker is run in full, a peer that fails is a row with its words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_peers
import numpy as np
import pytest
from bench_peers import PEERS, Bench, Peer, PeerError, Running, environment, limited, started, table

from memos.bench.dialogues import Conversation, read
from memos.errors import InputError

PETS = {"Ann": "a cat called Miso", "Bob": "a parrot called Rio", "Cid": "a horse called Dan", "Dot": "a crab"}


def dialogue(name: str, people: list[str]) -> dict[str, Any]:
    said = [
        {"speaker": person, "dia_id": f"D1:{n}", "text": f"I have {PETS[person]} at home."}
        for n, person in enumerate(people, start=1)
    ]
    asked = [
        {"question": f"What pet does {turn['speaker']} have?", "evidence": [turn["dia_id"]], "category": 4}
        for turn in said
    ]
    talk = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": said}
    return {"sample_id": name, "conversation": talk, "qa": asked}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps([dialogue("one", ["Ann", "Bob"]), dialogue("two", ["Cid", "Dot"])]))
    return file


@pytest.fixture
def conversations(data: Path) -> list[Conversation]:
    return read(data)


def nobody(texts: list[str]) -> np.ndarray:
    raise AssertionError("memos embeds by itself")


@pytest.mark.slow
def test_memos_is_measured_through_its_worker(conversations: list[Conversation], tmp_path: Path) -> None:
    row = Bench(conversations, nobody).row("memos", PEERS["memos"], tmp_path)
    assert "error" not in row
    assert row["recall@10"] == 1 and row["ndcg@10"] > 0.8
    assert row["after_kill"] == 1  # every add was on disk when the process was killed
    assert [row[kind]["turns"] for kind in ("single", "single_given", "batch", "batch_given")] == [4] * 4
    assert all(row[kind]["per_s"] >= row[kind]["found_per_s"] > 0 for kind in ("single", "batch"))
    assert 0 < row["search_own_ms"] < row["search_ms"]
    assert row["syncs_per_add"] is None or row["syncs_per_add"] >= 1
    report = {"turns": 4, "questions": 4, "machine": "m", "date": "2026-11-21", "rows": [row]}
    assert "| memos |" in table(report) and "| 1.000 |" in table(report)


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """A Python that knows a peer `for_lists`: a store that keeps what it is given, in memory and by no library."""
    (tmp_path / "for_lists.py").write_text(
        "class Lists:\n"
        "    def __init__(self, embed):\n        self.embed, self.kept = embed, []\n"
        "    def add(self, turns):\n"
        "        vectors = self.embed([f\"{t['speaker']}: {t['text']}\" for t in turns])\n"
        "        self.kept += [(t['user'], t['name'], v) for t, v in zip(turns, vectors)]\n"
        "    def ready(self): ...\n"
        "    def search(self, user, question, k):\n"
        "        [query] = self.embed([question])\n"
        "        mine = [(v @ query, name) for u, name, v in self.kept if u == user]\n"
        "        return [name for _, name in sorted(mine, reverse=True)[:k]]\n"
        "def open_store(folder, embed, variant):\n    return Lists(embed)\n"
    )
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(bench_peers.WORKER.parent)!r}]; import worker; "
    code = tmp_path / "lists" / "bin" / "python"
    code.parent.mkdir(parents=True)
    code.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{path}worker.main()"\n')
    code.chmod(0o755)
    (tmp_path / "lists" / "installed.json").write_text("[]")
    return code


@pytest.mark.slow
def test_a_peer_is_measured_and_what_it_did_not_keep_is_told(
    conversations: list[Conversation], lists: Path, tmp_path: Path
) -> None:
    def embed(texts: list[str]) -> np.ndarray:
        """A direction for each pet, whoever is asked about."""
        return np.stack([np.eye(384)[[word in text for word in PETS].index(True)] for text in texts])

    row = Bench(conversations, embed).row("lists", Peer("for_lists", env="lists", batches=True), tmp_path)
    assert "error" not in row
    assert row["recall@10"] == row["ndcg@10"] == 1
    assert row["after_kill"] == 0  # all was in memory
    assert [row[kind]["turns"] for kind in ("single", "single_given", "batch", "batch_given")] == [4] * 4
    assert all(row[kind]["per_s"] >= row[kind]["found_per_s"] > 0 for kind in ("single", "batch"))
    assert 0 < row["search_own_ms"] < row["search_ms"]


def test_a_peer_asks_for_vectors_while_it_works(lists: Path, tmp_path: Path) -> None:
    """The protocol, and what is counted."""
    asked: list[str] = []

    def embed(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.stack([np.eye(384, dtype=np.float32)["xyz".index(text[-1])] for text in texts])

    turns = [{"user": "u", "name": f"D1:{n}", "speaker": "A", "text": text} for n, text in enumerate("xyz")]
    with Running(lists, embed, tmp_path / "log") as running:  # type: ignore[arg-type]
        running.ask(open="for_lists", variant="", folder=str(tmp_path))
        running.ask(learn=turns)
        told = running.ask(add=turns, batch=2, stop_s=10.0)
        assert told["turns"] == 3 and told["seconds"] >= told["embedding_s"]
        assert asked == ["A: x", "A: y", "A: z"]  # once: what is learnt is not asked for again
        found = running.ask(search=[["u", "z"], ["v", "z"]], k=2)
        assert found["found"][0][0] == "D1:2" and found["found"][1] == []
        assert all(own <= ms for own, ms in zip(found["own_ms"], found["ms"], strict=True))
        with pytest.raises(PeerError, match="KeyError"):
            running.ask(add=[{}], batch=1, stop_s=10.0)


@pytest.mark.parametrize(
    ("peer", "says"),
    [
        (Peer("for_nothing"), "No module named 'for_nothing'"),
        pytest.param(
            Peer("for_chroma", env="broken", installs=("--no-index no-such-package-of-memos",)),
            "no-such-package",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_peer_that_does_not_run_is_a_row_with_its_error(
    conversations: list[Conversation], tmp_path: Path, peer: Peer, says: str
) -> None:
    row = Bench(conversations, nobody).row("it", peer, tmp_path)
    assert says in row["error"] and "recall@10" not in row
    report = {"turns": 4, "questions": 4, "machine": "m", "date": "2026-11-21", "rows": [row]}
    assert says in table(report)


def test_an_environment_that_is_filled_is_used_again(tmp_path: Path) -> None:
    peer = Peer("for_chroma", env="kept", installs=("something==1",))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "installed.json").write_text(json.dumps(peer.installs))
    assert environment(peer, tmp_path) == tmp_path / "kept" / "bin" / "python"


def test_a_limit_keeps_the_questions_that_can_still_be_answered(conversations: list[Conversation]) -> None:
    first, second = limited(conversations, 3)
    assert (len(first.turns), len(second.turns)) == (2, 1)
    assert [question.evidence for question in second.questions] == [("D1:1",)]
    with pytest.raises(InputError, match="--limit 0 leaves no question"):
        limited(conversations, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--peer", "mem1"], "--peer 'mem1' is not known; those that are: memos; mem0, qdrant"),
        (["--limit", "0"], "--limit 0 leaves no question"),
        (["--data", "absent.json"], "absent.json cannot be read"),
        (["--json", "no/such/folder.json"], "there is no folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(data: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    given = ["--data", str(data), "--envs", str(tmp_path), "--json", str(tmp_path / "out.json"), *arguments]
    done = subprocess.run([sys.executable, bench_peers.__file__, *given], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_a_finished_row_is_kept_and_a_report_of_other_turns_is_not_gone_on_with(tmp_path: Path) -> None:
    about = {"data": "talks.json", "turns": 4, "questions": 4, "machine": "m", "date": "2026-11-21"}
    file = tmp_path / "report.json"
    assert started(file, about)["rows"] == []
    file.write_text(json.dumps(about | {"rows": [{"peer": "memos"}]}))
    assert started(file, about | {"date": "2026-11-22"})["rows"] == [{"peer": "memos"}]
    with pytest.raises(InputError, match="other turns"):
        started(file, about | {"turns": 5})
    file.write_text("[]")
    with pytest.raises(InputError, match="no report of this script"):
        started(file, about)
