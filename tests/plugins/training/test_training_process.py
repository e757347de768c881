"""An adapter that is made in a process of its own: the same adapter, and no harm here when that process dies."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from memos.config import DistilConfig
from memos.cube import Contrast, Lesson, Probe
from memos.errors import Cancelled, HostError, NoProbes, NoRoom
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import ADAPTER, Task
from memos.plugins.training import process
from memos.plugins.training.craft import CHECKPOINT, craft
from memos.plugins.training.process import craft_apart

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
BRIEF = DistilConfig(
    steps=6, batch=2, batch_keep=2, rank=4, learning_rate=1e-2, review=4, checkpoint=2, instant="never"
)


def task(question: str = "Where does Mira live?", answer: str = "Lisbon", steps: int = 6) -> Task:
    probes = [Probe(question=question, answer=answer, held_out=out) for out in (False, True)]
    lessons = tuple(Lesson(memories=("Mira lives in Lisbon.",), probe=probe) for probe in probes)
    keep = tuple(Contrast(question="Where does Tom live?", held_out=out) for out in (False, True))
    return Task(lessons=lessons, keep=keep, config=BRIEF.model_copy(update={"steps": steps}), card={"seed": 0})


@pytest.mark.slow
def test_the_same_adapter_comes_of_it_as_here(host: Host, tmp_path: Path) -> None:
    told: list[str] = []
    here = craft(host, task(), tmp_path / "here", lambda *_: None)
    there = craft_apart(host, task(), tmp_path / "there", lambda phase, *_: told.append(phase))
    assert there == here
    assert list(dict.fromkeys(told)) == ["load", "prepare", "train", "save", "gate"] and told.count("train") == 6
    files = [tmp_path / where / ADAPTER / "adapter_model.safetensors" for where in ("here", "there")]
    assert_close(*map(load_file, files), atol=1e-4, rtol=1e-2)


@pytest.mark.slow
def test_what_goes_wrong_there_is_raised_here(host: Host, tmp_path: Path) -> None:
    with pytest.raises(NoProbes, match="answers none of 1 probes even with the memory in its context"):
        craft_apart(host, task(answer="zorblax"), tmp_path, lambda *_: None)


@pytest.mark.slow
def test_a_process_that_is_killed_harms_nothing_here(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.greedy([host.ids_of("Where does Mira live?")])
    started: list[subprocess.Popen[str]] = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(process.subprocess, "Popen", Watched)

    def kill(phase: str, step: int, of: int, loss: float) -> None:
        if phase == "train" and step == 3:
            os.kill(started[0].pid, signal.SIGKILL)

    with pytest.raises(NoRoom, match="training process was killed, as the system does where memory runs out; promote"):
        craft_apart(host, task(steps=10_000), tmp_path, kill)
    assert {path.name for path in tmp_path.iterdir()} <= {CHECKPOINT, CHECKPOINT.replace("safetensors", "new")}
    assert host.greedy([host.ids_of("Where does Mira live?")]) == before


@pytest.mark.slow
def test_a_listener_that_says_stop_ends_the_process(host: Host, tmp_path: Path) -> None:
    def stop(phase: str, step: int, of: int, loss: float) -> None:
        if phase == "train":
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        craft_apart(host, task(steps=10_000), tmp_path, stop)
    assert [p for p in psutil.Process().children() if "memos.plugins.training.process" in p.cmdline()] == []


@pytest.mark.slow
def test_a_model_that_has_changed_since_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "digest", "of another model")
    with pytest.raises(HostError, match="memos-small has changed since it was loaded; load it again"):
        craft_apart(host, task(), tmp_path, lambda *_: None)


def test_a_process_that_cannot_start_says_why(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    with pytest.raises(HostError, match=r"the training process ended with 1: .*nothing was published"):
        craft_apart(host, task(), tmp_path / "work", lambda *_: None)
