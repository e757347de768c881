"""Curators: what their operations do to a vault, all or none of them, and how each run is taken back."""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from talk import SharedParts

from memos.config import Config, CuratorsConfig
from memos.cube import MemCube, State, Trust
from memos.errors import BadTransition, InputError, NotFound
from memos.kernel.mem_os import MemOS
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.curators.curator import (
    Archive,
    BringBack,
    Curator,
    CuratorOps,
    CuratorView,
    ForgetMemory,
    Keep,
    Link,
    Merge,
    Retag,
    Revise,
    Score,
    Summarise,
    Unlink,
    Writer,
)
from memos.plugins.curators.signals import Recalled

Turns = Sequence[MemCube]


class Scripted(Curator):
    """Does what it is told, at the next exchange."""

    def __init__(self) -> None:
        self.next: Callable[[Turns, CuratorView], CuratorOps] = lambda turns, view: ()

    def on_turns(self, turns: Turns, view: CuratorView, writer: Writer) -> CuratorOps:
        return self.next(turns, view)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        return view.near(query, k, "note", "digest")


class Ann:
    def __init__(self, kernel: MemOS, system: Scripted) -> None:
        self.kernel, self.within, self.system = kernel.within("ann"), kernel.within, system
        self.calls = CuratorCalls.of(self.kernel)
        self._days = itertools.count(1)

    def says(self, words: str, then: Callable[[Turns, CuratorView], CuratorOps] = lambda turns, view: ()) -> MemCube:
        """The turn, once the system has done this with it."""
        self.system.next = then
        when = datetime(2025, 1, next(self._days), tzinfo=timezone.utc).isoformat()
        [turn] = self.kernel.add([{"speaker": "Ann", "content": words, "time": when}])
        self.calls.curate()
        return turn

    def notes(self) -> dict[str, str]:
        return {cube.text: cube.id for cube in self.kernel.memories() if cube.header.kind in ("note", "digest")}

    def state(self) -> list[tuple[object, ...]]:
        """Everything that can be read of the memories in force, but for the turn in which something was done."""
        cubes = [cube for cube in self.kernel.memories() if "More of" not in cube.text]
        links = sorted({link for cube in cubes for link in self.calls.linked(cube.id)})
        return [(c.id, c.text, c.header.tags, [s.id for s in c.sources]) for c in cubes] + [tuple(links)]


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[Ann]:
    system = Scripted()
    with MemOS(parts=SharedParts(Config(), tmp_path / "vault", system)) as kernel:
        yield Ann(kernel, system)


def note(text: str, *sources: str, **more: object) -> Keep:
    return Keep.model_validate({"text": text, "kind": "note", "sources": sources, **more})


def test_what_is_kept_names_its_turn_is_believed_as_a_model_and_is_found(ann: Ann) -> None:
    turn = ann.says("I moved to Oslo.", lambda turns, view: [note("Ann lives in Oslo", turns[0].id)])
    [cube] = [c for c in ann.kernel.memories() if c.text == "Ann lives in Oslo"]
    assert cube.header.trust is Trust.MODEL and [source.id for source in cube.sources] == [turn.id]
    assert cube.header.said == turn.header.said and cube.header.origin.endswith("own")
    assert [hit.cube.id for hit in ann.kernel.search("Where does Ann live?")] == [cube.id]
    assert turn.id in {c.id for c in ann.kernel.memories()}  # it answers as before
    ann.kernel.delete(turn.id)
    assert ann.notes() == {}


def test_a_statement_is_given_as_a_turn_without_who_said_it_in_its_words(ann: Ann) -> None:
    seen = list[tuple[str, str, str]]()

    def look(turns: Turns, view: CuratorView) -> CuratorOps:
        seen.extend((turn.header.speaker, turn.words, turn.header.kind) for turn in turns)
        return ()

    ann.system.next = look
    ann.kernel.add("Bo: I moved to Oslo.")
    ann.calls.curate()
    ann.says("I like tea.", look)
    assert seen == [("Bo", "I moved to Oslo.", "episode"), ("Ann", "I like tea.", "episode")]


def operations(ann: Ann) -> dict[str, Callable[[Turns, CuratorView], CuratorOps]]:
    a, b = (ann.notes()[name] for name in ("a", "b"))
    turn = ann.kernel.memories()[0].id
    return {
        "keep": lambda turns, view: [note("c", turns[0].id, name="#c"), Link(a="#c", b=a, kind="near")],
        "keep without a source": lambda turns, view: [note("c")],
        "summarise": lambda turns, view: [Summarise(text="a\nb", sources=(turn, turns[0].id))],
        "revise": lambda turns, view: [Revise(id=a, text="a and more", sources=(turns[0].id,))],
        "merge": lambda turns, view: [Merge(ids=(a, b), text="a, b", kind="note")],
        "link": lambda turns, view: [Link(a=a, b=b, kind="near", weight=0.5)],
        "link anew": lambda turns, view: [Link(a=b, b=a, kind="first", weight=0.1)],
        "link a turn": lambda turns, view: [Link(a=a, b=turn, kind="tells")],
        "unlink": lambda turns, view: [Unlink(a=b, b=a, kind="first")],
        "retag": lambda turns, view: [Retag(id=a, tags=("x", "y"))],
        "score": lambda turns, view: [Score(id=a, name="importance", value=7.0)],
        "archive": lambda turns, view: [Archive(id=a, why="old")],
        "archive and bring back": lambda turns, view: [Archive(id=a, why="old"), BringBack(id=a)],
        "forget": lambda turns, view: [ForgetMemory(id=a, why="wrong")],
        "all": lambda turns, view: [
            Retag(id=a, tags=("x",)), Revise(id=a, text="a, too"), Link(a=a, b=b, kind="near"), Archive(id=b, why="old")
        ],
    }  # fmt: skip


NAMES = ["keep", "keep without a source", "summarise", "revise", "merge", "link", "link anew", "link a turn", "unlink"]
NAMES += ["retag", "score", "archive", "archive and bring back", "forget", "all"]


def test_each_run_is_taken_back_word_for_word(ann: Ann) -> None:
    ann.says(
        "One.",
        lambda turns, view: [
            note("a", turns[0].id, name="#a", tags=("x",)), note("b", name="#b"), Link(a="#b", b="#a", kind="first")
        ],
    )  # fmt: skip
    assert list(operations(ann)) == NAMES
    for name in NAMES:
        ann.says(f"And {name}.")
        before = ann.state()
        ann.says(f"More of {name}.", operations(ann)[name])
        [run, *_] = ann.calls.curations()
        assert ann.state() != before or name in ("score", "archive and bring back"), name
        ann.calls.undo_curation(run.id)
        assert ann.state() == before, name
        with pytest.raises(NotFound, match="there is no run"):
            ann.calls.undo_curation(run.id)


def test_scores_are_kept_read_and_taken_back(ann: Ann) -> None:
    seen = list[dict[str, float]]()

    def look(turns: Turns, view: CuratorView) -> CuratorOps:
        seen.append(view.scores("importance"))
        return ()

    ann.says("One.", lambda turns, view: [note("a", scores={"importance": 3.0})])
    a = ann.notes()["a"]
    ann.says("Two.", lambda turns, view: [Score(id=a, name="importance", value=8.0)])
    ann.says("Three.", look)
    ann.calls.undo_curation(ann.calls.curations()[0].id)
    ann.says("Four.", look)
    assert seen == [{a: 8.0}, {a: 3.0}]


def test_a_run_that_a_later_one_rests_on_is_not_undone_before_it(ann: Ann) -> None:
    ann.says("One.", lambda turns, view: [note("a")])
    a = ann.notes()["a"]
    ann.says("Two.", lambda turns, view: [Revise(id=a, text="b")])
    last, first = ann.calls.curations()
    with pytest.raises(BadTransition, match=f"run {first.id} was built upon by {last.id}; undo that first"):
        ann.calls.undo_curation(first.id)
    ann.calls.undo_curation(last.id)
    ann.calls.undo_curation(first.id)
    assert ann.notes() == {}


def raises(turns: Turns, view: CuratorView) -> CuratorOps:
    yield note("half")
    raise RuntimeError("no idea")


def endless(turns: Turns, view: CuratorView) -> CuratorOps:
    return (note(f"{n}") for n in itertools.count())


def circles(turns: Turns, view: CuratorView) -> CuratorOps:
    while True:
        view.memories()


@pytest.mark.parametrize(
    "wrong, told",
    [
        (raises, "it raised RuntimeError: no idea"),
        (endless, "asks for more than 256 operations at once; raise curators.operations"),
        (circles, r"has had its time for one run \(curators.seconds\)"),
        (lambda turns, view: [note("half"), note("x", "nowhere")], "nowhere"),
        (lambda turns, view: [note("half"), Link(a="#later", b="#half", kind="k")], "#later, which no operation"),
        (lambda turns, view: [note("half"), Revise(id=turns[0].id, text="otherwise")], "which no curator has made"),
        (lambda turns, view: [note("half"), Archive(id=turns[0].id, why="")], "which no curator has made"),
        (lambda turns, view: [note("half"), note("  ")], "keeps an empty text"),
        (lambda turns, view: [note("half"), note("x" * 20_001)], "20,001 characters, and a memory has 20,000"),
        (lambda turns, view: [note("half", name="#a"), Link(a="#a", b="#a", kind="k")], "to itself"),
        (lambda turns, view: [note("half", name="#a"), Merge(ids=("#a",), text="m", kind="note")], "merges 1 memory"),
    ],
)
def test_a_curator_that_goes_wrong_changes_nothing_and_goes_on(
    ann: Ann, wrong: Callable[[Turns, CuratorView], CuratorOps], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    ann.calls._services.of_plugin("curators")._config = CuratorsConfig(seconds=0.5)  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "memos"):
        turn = ann.says("I moved to Oslo.", wrong)
    assert ann.notes() == {} and ann.calls.curations() == []
    assert ann.kernel.get(turn.id).text == turn.text
    [line] = [record.getMessage() for record in caplog.records if "changed nothing" in record.getMessage()]
    assert re.search(told, line), line
    ann.says("And to Bergen.", lambda turns, view: [note("Bergen", turns[0].id)])
    assert list(ann.notes()) == ["Bergen"]


def test_what_others_may_not_do_changes_nothing(ann: Ann) -> None:
    bob = CuratorCalls.of(ann.within("bob"))
    ann.says("One.", lambda turns, view: [note("a", name="#a"), note("b", name="#b"), Link(a="#a", b="#b", kind="k")])
    a, b = ann.notes()["a"], ann.notes()["b"]
    for call in (lambda: bob.linked(a), lambda: bob.link(a, b, "k"), lambda: bob.unlink(a, b, "k")):
        with pytest.raises(NotFound):
            call()
    [run] = ann.calls.curations()
    assert bob.curations() == []
    with pytest.raises(NotFound, match="no run"):
        bob.undo_curation(run.id)


def test_links_go_with_their_memories_and_have_their_time(ann: Ann) -> None:
    ann.says("One.", lambda turns, view: [note("a", turns[0].id), note("b")])
    a, b = ann.notes()["a"], ann.notes()["b"]
    past = datetime(2020, 1, 1, tzinfo=timezone.utc)
    ann.calls.link(a, b, "was near", until=past)
    ann.calls.link(a, b, "near", 2.0)
    assert {link.kind for link in ann.calls.linked(b)} == {"near", "was near"}
    seen = list[set[str]]()

    def look(turns: Turns, view: CuratorView) -> CuratorOps:
        seen.append({link.kind for link in view.links(a)})
        return ()

    ann.says("Two.", look)
    assert seen == [{"near"}]  # the other is no longer true
    with pytest.raises(InputError, match="to itself"):
        ann.calls.link(a, a, "near")
    with pytest.raises(InputError, match="give a word"):
        ann.calls.link(a, b, " ")
    ann.kernel.delete(ann.kernel.get(a).sources[0].id)
    assert ann.calls.linked(b) == []


def test_a_system_chosen_later_works_over_what_is_there_and_sees_nothing_that_the_first_has_made(
    tmp_path: Path,
) -> None:
    for name in ("mem0", "plain-rag", "mem0-graph"):
        with MemOS(parts=SharedParts(Config(policy=name), tmp_path)) as kernel:
            if name == "mem0":
                kernel.add([{"speaker": "Ann", "content": "I work as a nurse in Leeds."}])
            found = kernel.search("Where does Ann work?", top_k=5)
            made = [hit.cube for hit in found if hit.cube.header.origin.startswith("model:curator:")]
            assert {c.header.origin for c in made} <= {f"model:curator:{'mem0' if name == 'plain-rag' else name}"}
            assert found and "nurse" in found[0].cube.text


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from talk import SharedParts
from memos.config import Config
from memos.kernel.mem_os import MemOS
from memos.lazy import Lazy
from memos.plugins.curators.calls import CuratorCalls
with MemOS(Config(policy="mem0-graph"), vault={vault!r}) as kernel:
    kernel.parts.embedder = Lazy(embedder)
    print("ready", flush=True)
    CuratorCalls.of(kernel).curate()
"""


@pytest.mark.slow
@pytest.mark.crash
def test_kills_leave_no_half_written_run(tmp_path: Path) -> None:
    root, vault = Path(__file__).parents[3], tmp_path / "vault"
    with MemOS(Config(policy="plain-rag"), vault=vault) as kernel:
        kernel.add(
            [
                {"speaker": "Ann", "content": f"My friend Mira{n} works as a nurse in Leeds since 20{n:02}."}
                for n in range(40)
            ]
        )
    script = SCRIPT.format(root=str(root), tests=str(root / "tests/plugins"), vault=str(vault))
    for n in range(20):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            time.sleep(0.05 + 0.37 * n % 1.5)
            os.kill(process.pid, signal.SIGKILL)
        with MemOS(Config(policy="plain-rag"), vault=vault) as kernel:
            calls = CuratorCalls.of(kernel)
            runs, made = (
                calls.curations(),
                [c for c in kernel.memories() if c.header.origin.startswith("model:curator:")],
            )
            assert len(runs) == len(made) == len({c.sources[0].id for c in made})  # each turn once, each run whole
            assert all(c.state is State.ACTIVATED for c in made)
    with MemOS(Config(policy="mem0-graph"), vault=vault) as kernel:
        CuratorCalls.of(kernel).curate()
        assert len(CuratorCalls.of(kernel).curations()) == 40
