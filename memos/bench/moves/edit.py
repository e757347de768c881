"""The row `edit` of `memos bench moves`: facts that change one after the other, each an edit of the adapter before."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memos.bench.moves.row import Row
from memos.bench.scenes import scene
from memos.config import DistilConfig
from memos.cube import Fact, Lesson, MadeBy, Text
from memos.errors import GateRejected
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, judge, share, short_of
from memos.interface.reading.contrasts import an_object
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.externalize.statements import stated
from memos.plugins.progress import Show
from memos.plugins.training.craft import make, quick_ways
from memos.plugins.training.edit import OUTDATED, outdated, still_said

FACTS, PEOPLE = 16, 2
_GROUPS_TRIED = 5  # until the adapter of one is accepted, which the edits begin from


@dataclass(frozen=True)
class Edit:
    """What changing one fact in an adapter did; shares of questions.

    seconds: without the gate. known: about the fact, answered with the new value; as_text: as over its text; old:
    answered with the value that is gone; neighbours: about the other facts, answered as before; unrelated: as by the
    base model. refused: what fell short of the gate, after which it was trained anew.
    """

    seconds: float
    bytes: int
    known: float
    as_text: float
    old: float
    neighbours: float
    unrelated: float
    refused: tuple[str, ...] = ()


def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
    """groups: edits, each of the adapter that the one before made, by the quickest way that passes. accepted: those
    whose new value the unchanged gate finds known, and the rest kept; what it refuses is trained anew, and the chain
    goes on from there. same_answer: of the questions about the changed fact. locality: of those about the other facts,
    and of unrelated ones. control: of the questions about the value that is gone, those answered with it all the same,
    where .02 is good.
    """
    edits = edits_in_a_row(host, groups, seed, show)
    return Row(
        move="edit",
        groups=len(edits),
        seconds_p50=statistics.median(edit.seconds for edit in edits),
        bytes_mean=round(statistics.fmean(edit.bytes for edit in edits)),
        same_answer=statistics.fmean(edit.as_text for edit in edits),
        locality=statistics.fmean((edit.neighbours + edit.unrelated) / 2 for edit in edits),
        accepted=share([not edit.refused for edit in edits]),
        control=statistics.fmean(edit.old for edit in edits),
    )


def edits_in_a_row(host: Host, count: int, seed: int, show: Show) -> list[Edit]:
    """So many, on one group of 16 facts about two people. Raises GateRejected where no adapter of it is accepted."""
    edits = list[Edit]()
    with tempfile.TemporaryDirectory() as name:
        chain = _begun(host, Path(name), seed)
        for n in range(count):
            chain, edit = chain.changed(Path(name) / str(n), random.Random(f"{seed} {n}"))
            edits.append(edit)
            show("edit", n + 1, count)
    return edits


@dataclass(frozen=True)
class _Chain:
    """The memories as they are, and the adapter that has learnt them."""

    host: Host
    memories: tuple[Text, ...]
    folder: Path
    seed: int

    def task(self, memories: Sequence[Text], earlier: Path | None) -> Task:
        reader, facts = MemReader(), [fact for memory in memories for fact in memory.facts]
        return Task(
            lessons=tuple(reader.lessons(memories)),
            keep=tuple(reader.contrasts(facts, self.host.own_questions(), self.seed)),
            config=DistilConfig(seed=self.seed),
            earlier=earlier,
        )

    def changed(self, made: Path, rng: random.Random) -> tuple[_Chain, Edit]:
        """One fact with another value; trained anew where the gate refuses the edit."""
        place = rng.randrange(len(self.memories))
        memories = list(self.memories)
        memories[place] = _other_value(memories[place].facts[0], memories, rng)
        task = self.task(memories, self.folder)
        began, judging = time.perf_counter(), 0.0
        for way in quick_ways(self.host, task):
            path = made.with_suffix(f".{way}")
            make(self.host, task, way, path, _quiet)
            seconds = time.perf_counter() - began - judging
            edit = self._judged(task, memories[place].text, path, seconds)
            if not edit.refused:
                return _Chain(self.host, tuple(memories), path, self.seed), edit
            judging = time.perf_counter() - began - seconds
        return _Chain(self.host, tuple(memories), made, self.seed).anew(), edit

    def anew(self) -> _Chain:
        """The same memories, learnt by a fresh adapter, which is written to the same folder."""
        make(self.host, self.task(self.memories, None), MadeBy.TRAINING, self.folder, _quiet)
        return self

    def _judged(self, task: Task, changed: str, made: Path, seconds: float) -> Edit:
        old = outdated(self.host, self.folder, task.lessons)
        scores = judge(self.host, (made,), task.lessons, task.keep) | {OUTDATED: still_said(self.host, made, old)}
        about = [x for x in task.lessons if x.memories == (changed,)]
        others = [x for x in task.lessons if x.memories != (changed,)]
        over_text = self.host.greedy([self.host.ids_of(x.probe.question, x.memories) for x in about])
        now, before = self._answers(about, made), self._answers(others, self.folder)
        kept = zip(before, self._answers(others, made), strict=True)
        return Edit(
            seconds=seconds,
            bytes=sum(file.stat().st_size for file in made.iterdir()),
            known=share([x.probe.holds(self.host.text_of(ids)) for x, ids in zip(about, now, strict=True)]),
            as_text=share([a == b for a, b in zip(now, over_text, strict=True)]),
            old=scores[OUTDATED],
            neighbours=share([a == b for a, b in kept]),
            unrelated=scores["locality"],
            refused=tuple(short_of(scores, task.config.gate)),
        )

    def _answers(self, lessons: Sequence[Lesson], folder: Path) -> list[tuple[int, ...]]:
        return self.host.greedy([self.host.ids_of(x.probe.question) for x in lessons], self.host.cold((folder,)))


def _quiet(*_: object) -> None: ...


def _begun(host: Host, work: Path, seed: int) -> _Chain:
    reader, short = MemReader(), list[str]()
    for n in range(seed, seed + _GROUPS_TRIED):
        (texts,) = scene(f"edit {n}", 1, FACTS, PEOPLE).cubes
        memories = tuple(Text(text=text, facts=reader.facts(text)) for text in texts)
        task = _Chain(host, memories, work, n).task(memories, None)
        for way in (*quick_ways(host, task), MadeBy.TRAINING):
            path = work / f"begun {n} {way}"
            make(host, task, way, path, _quiet)
            if not (short := short_of(judge(host, (path,), task.lessons, task.keep), task.config.gate)):
                return _Chain(host, memories, path, n)
    raise GateRejected(f"no adapter of {_GROUPS_TRIED} groups passed its gate, so there is none to edit; {short}", {})


def _other_value(fact: Fact, memories: Sequence[Text], rng: random.Random) -> Text:
    """The same said of a value that none of the memories has."""
    taken = {f.object for memory in memories for f in memory.facts}
    while (value := an_object(rng, fact.relation)) in taken:
        pass
    text = stated(fact.model_copy(update={"object": value}))
    return Text(text=text, facts=MemReader().facts(text))
