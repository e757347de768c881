"""What holds for every system that writes: nothing said is lost, all that it did is undone, a kill leaves no half."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from talk import Conversation, SharedParts, conversation

from memos.config import Config
from memos.cube import MemCube
from memos.kernel.mem_os import MemOS
from memos.operation.policies.policy import POLICIES, Writes
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.curators.carrying_out import maker

WRITING = [name for name in POLICIES.names() if isinstance(POLICIES.get(name)(Config()), Writes)]
SYSTEMS = [name for name in WRITING if not any(name.startswith(f"{other}-") for other in WRITING)]
LINES = [
    ("Ann: I work as a nurse in Leeds, and my sister Mira plays the violin.", "Bo: What a day! I bought a boat."),
    ("Ann: From now on, always answer in French.", "Bo: D'accord."),
    ("Ann: I was so happy when we won the final on Sunday!", "Bo: I cried of joy, too."),
    ("Ann: I no longer work as a nurse in Leeds; I moved to York and teach now.", "Bo: Since when?"),
    ("user: My password is hunter2 and my dog Rex is ill.", "assistant: I am sorry to hear that about Rex."),
    ("Ann: 我住在北京,我喜欢喝茶。", "Bo: 😀"),
    ("Ann: " + "very " * 2000 + "long.", "Bo: ?"),
]


def said(talk: Conversation) -> list[str]:
    """What everybody said, word for word."""
    there = [cube for cube in talk.kernel.cubes() if not maker(cube) and not cube.sources]
    return sorted(getattr(cube.payload, "verbatim", "").strip() for cube in there)


def told(talk: Conversation) -> None:
    for day, lines in enumerate(LINES):
        talk.say(*lines, day=day)


def words(lines: tuple[str, ...]) -> list[str]:
    return [line.split(": ", 1)[1].strip() for line in lines]


@pytest.mark.parametrize(
    "system", [*SYSTEMS, *(pytest.param(n, marks=pytest.mark.slow) for n in WRITING if n not in SYSTEMS)]
)
def test_a_system_loses_nothing_and_all_that_it_did_is_taken_back(
    tmp_path: Path, system: str, caplog: pytest.LogCaptureFixture
) -> None:
    with conversation(tmp_path, system) as talk:
        told(talk)
        turns = said(talk)
        assert turns == sorted(word for lines in LINES for word in words(lines))
        found = talk.kernel.search("Where does Ann work?", top_k=20)
        assert found and len({hit.cube.id for hit in found}) == len(found)
        for run in talk.calls.curations():
            talk.calls.undo_curation(run.id)
        assert talk.made() == [] and talk.links() == set() and said(talk) == turns
        assert talk.calls.curations() == []
    assert "changed nothing" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_packaged_model_writes_for_every_system(
    tmp_path: Path, system: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It writes nonsense of the schema: none is unparsable, and no turn is lost."""
    with conversation(tmp_path, system, curators={"writer": "local", "seconds": 600}) as talk:
        told(talk)
        assert said(talk) == sorted(word for lines in LINES for word in words(lines))
        assert talk.calls.writer_cost(system).failed == 0
        talk.find("Where does Ann work?")
    assert "changed nothing" not in caplog.text


SCRIPT = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from talk import SharedParts, embedder, reader
from memos.config import Config
from memos.kernel.mem_os import MemOS
from memos.plugins.curators.calls import CuratorCalls
embedder().embed(["ready"])
reader().stated("I moved to Oslo.", "Ann", __import__("datetime").date(2025, 1, 1))
with MemOS(parts=SharedParts(Config(policy={system!r}), Path({vault!r}))) as kernel:
    print("ready", flush=True)
    CuratorCalls.of(kernel.within("ann")).curate()
    print("done", flush=True)
"""
KILLS = 10  # of each system


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("system", SYSTEMS)
def test_kills_leave_no_half_of_a_run(tmp_path: Path, system: str) -> None:
    """Each kill at a time of its own; what is there then is what an unbroken run has after as many exchanges."""
    root, chance = Path(__file__).parents[3], random.Random(system)
    vault = tmp_path / "killed"
    for folder in (tmp_path / "whole", vault):
        with conversation(folder, system) as talk:  # closed before it reads anything by itself
            for day, lines in enumerate(LINES):
                talk.memory.add(messages=_messages(lines, day), user_id="ann", run_id="talk")
            assert talk.made() == []
    with conversation(tmp_path / "whole", system) as talk:
        talk.calls.curate()
        whole = sorted(talk.texts())
    script = SCRIPT.format(root=str(root), tests=str(root / "tests/plugins"), system=system, vault=str(vault))
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            time.sleep(chance.random())
            os.kill(process.pid, signal.SIGKILL)
        with MemOS(parts=SharedParts(Config(policy="plain-rag"), vault)) as kernel:
            calls, there = CuratorCalls.of(kernel.within("ann")), kernel.within("ann").memories()
            made: set[str] = {cube.id for cube in there if maker(cube)}
            steps = {step.id for run in calls.curations() for step in _steps(kernel, run.id)}
            assert made <= steps  # no memory without the run that made it
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("done\n")
    with MemOS(parts=SharedParts(Config(policy="plain-rag"), vault)) as kernel:
        assert sorted(_made(kernel)) == whole


def _made(kernel: MemOS) -> list[str]:
    cubes: list[MemCube] = kernel.within("ann").memories()
    return [cube.text for cube in cubes if maker(cube)]


def _steps(kernel: MemOS, run: str) -> list[tuple[str, object]]:
    tables = kernel.services.of_plugin("curators")._tables  # type: ignore[attr-defined]
    return list(tables.steps("ann", run))


def _messages(lines: tuple[str, ...], day: int) -> list[dict[str, object]]:
    """As `Conversation.say` gives them: minutes go on from call to call."""
    from datetime import timedelta

    from talk import FIRST

    before, out = sum(len(some) for some in LINES[:day]), list[dict[str, object]]()
    for n, line in enumerate(lines):
        who, _, text = line.partition(": ")
        when = (FIRST + timedelta(days=day, minutes=before + n)).isoformat()
        role = who if who in ("user", "assistant") else "user"
        out.append({"role": role, "content": text, "time": when} | ({"name": who} if role != who else {}))
    return out
