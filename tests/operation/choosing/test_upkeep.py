"""Between requests: planned moves are jobs, which survive a kill and are done in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from memos import MemOS
from memos.config import Config, SchedulerConfig
from memos.cube import Form, State
from memos.errors import VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from tests.doubles import BRIEF, BriefReader

ROOT = Path(__file__).parents[3]
SAID = ("I live in Lisbon.", "I am a nurse by trade.", "I have a cat as a pet.")
ASKED = "Where does Mira live?"
HOT = SchedulerConfig(activate_heat=4.9, parametric_heat=99.0, cool_heat=3.0, choice="dearest")
_LEFT_RUNNING = """
import sys
from memos import MemOS
memos = MemOS(vault=sys.argv[1])
memos.vault.jobs.take()
print("taken", flush=True)
sys.stdin.read()
"""


def hot(memos: MemOS) -> None:
    memos.add([{"speaker": "Mira", "content": text} for text in SAID])
    memos.ask(ASKED)


def opened(vault: Path, **scheduler: Any) -> MemOS:
    return MemOS(Config(scheduler=HOT.model_copy(update=scheduler)), vault=vault)


def wait_for(what: Any, seconds: float = 60) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def test_what_was_planned_is_done_by_another_process_after_a_kill(tmp_path: Path) -> None:
    with opened(tmp_path) as memos:
        hot(memos)
        [job] = memos.plan()
        assert memos.plan() == [job]  # it waits already
        assert [(j.id, j.state, j.kind) for j in memos.jobs()] == [(job, "queued", "promote to activation")]
    command = [sys.executable, "-c", _LEFT_RUNNING, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout and process.stdout.readline() == "taken\n"
        process.send_signal(signal.SIGKILL)
    with opened(tmp_path) as memos:
        assert [j.state for j in memos.jobs()] == ["queued"]
        [done] = memos.services.planning.upkeep.work()
        assert memos.get(done["cube"]).form is Form.ACTIVATION and memos.jobs() == []


def test_a_move_of_a_memory_that_has_changed_meanwhile_is_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as memos:
        hot(memos)
        memos.plan()
        memos.update(memos.memories()[0].id, "I live in Rome.")
        assert memos.jobs() == [] and memos.services.planning.upkeep.work() == []


def test_what_is_hot_becomes_kv_in_the_background(tmp_path: Path) -> None:
    with opened(tmp_path, background_s=0.05) as memos:
        hot(memos)
        [kv] = wait_for(lambda: memos.cubes(form=Form.ACTIVATION))
        assert kv.state is State.ACTIVATED
        assert memos.ask(ASKED).admission.activations == (kv,)


def test_closing_interrupts_training_and_the_next_round_goes_on_with_it(tmp_path: Path) -> None:
    config = Config(
        scheduler=HOT.model_copy(update={"parametric_heat": 4.9, "stable_s": 0.0, "background_s": 0.05}),
        distil=BRIEF.model_copy(update={"steps": 10_000, "stop_probability": 1.0, "checkpoint": 1}),
    )
    with MemOS(config, vault=tmp_path) as memos:
        memos.parts.reader = BriefReader()
        hot(memos)
        assert wait_for(lambda: any(job.note.startswith("train") for job in memos.jobs()))
    with MemVault(tmp_path) as vault:
        assert [(job.state, job.kind) for job in vault.jobs.all("interrupted")] == [
            ("interrupted", "promote to parametric")
        ]
        [job] = vault.jobs.all("interrupted")
        taken = vault.jobs.take()
        assert taken and taken.id == job.id and [p.name for p in vault.blobs.work(job.id).iterdir()] != []
        vault.jobs.end(taken, "undone")


def test_kv_whose_job_is_cancelled_while_it_is_made_is_not_published(tmp_path: Path) -> None:
    with opened(tmp_path) as memos:
        hot(memos)
        [job] = memos.plan()
        [done] = memos.services.planning.upkeep.work(lambda *_: memos.cancel(job))
        assert "was cancelled" in done["failed"] and memos.cubes(form=Form.ACTIVATION) == []
        assert [(j.id, j.note.split(":")[0]) for j in memos.vault.jobs.all("undone")] == [(job, "Cancelled")]


def test_a_worker_whose_job_another_has_taken_meanwhile_publishes_nothing_and_ends_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as memos, MemVault(tmp_path) as other:
        hot(memos)
        [job] = memos.plan()
        taken = list[Any]()

        def lose(*_: object) -> None:
            other.jobs.end_cut_off()  # as where it was not heard of
            taken.append(other.jobs.take())

        [done] = memos.services.planning.upkeep.work(lose)
        assert "another process may have it" in done["failed"] and memos.cubes(form=Form.ACTIVATION) == []
        assert [(j.id, j.holder) for j in other.jobs.all("running")] == [(job, taken[0].holder)]


def test_a_job_that_the_disk_was_in_the_way_of_waits_to_be_tried_again(tmp_path: Path) -> None:
    with opened(tmp_path) as memos:
        hot(memos)
        [job] = memos.plan()

        def full(*_: object) -> None:
            raise VaultError("the disk is full")

        assert memos.services.planning.upkeep.work(full)[0]["failed"] == "the disk is full"
        assert [(j.id, j.tries) for j in memos.vault.jobs.all("queued")] == [(job, 1)]
        [done] = memos.services.planning.upkeep.work()
        assert memos.get(done["cube"]).form is Form.ACTIVATION
