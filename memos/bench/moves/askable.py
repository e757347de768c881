"""`memos bench askable`: of how much of real conversations the gate of promotions can ask, and whether it tells.

Dialogues are added by the public call and read by the default configuration; the groups are those that the scheduler
promotes. What is asked is counted twice: by the text alone, as no language model is needed to leave words out, and as a
promotion counts it, where the model must answer a question over its memory and not without it.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from memos.bench.conversations import Call, added
from memos.bench.dialogues import read
from memos.config import Config
from memos.cube import Form, MemCube, Probe
from memos.errors import GateRejected, InputError, MemosError, NoProbes
from memos.infrastructure.host.training.teach import share
from memos.interface.doors.api.memory import Memory
from memos.kernel.services.forming import said_once
from memos.operation.forms.lesson_maker import GroupLessons, LessonMaker
from memos.operation.policies.policy import terms
from memos.plugins.progress import Show

REFUSED = {NoProbes: "cannot be judged", GateRejected: "fell short of the gate"}  # others by their name


@dataclass(frozen=True)
class _Group:
    """A topic group of one conversation, as it is promoted, and what is asked about it."""

    user: str
    cubes: tuple[MemCube, ...]

    @property
    def texts(self) -> list[str]:
        return [cube.text for cube in self.cubes]


def bench_askable(
    kind: str, data: Path, config: Config, groups: int, gate: int, seed: int, show: Show
) -> dict[str, Any]:
    """Two rows: asked by the text alone, and as the model is asked. Raises InputError.

    statements: sentences of the groups that state something. askable: share of them with a question for training and
    one that is held out; also as the mean and the least of a group. refused: groups that a promotion refuses before
    anything is trained. unjudged: groups that it does not, though less than `distil.gate.askable` is asked about, or
    nothing is held out. own: of the questions, those whose answer is found in their group by the words that they share
    with it; control: in the next group of the draw. outcomes: what came of the first promotions by the public call, at
    most `gate` of those that are trained and `gate` of the others.
    """
    conversations = read(data, kind)
    with tempfile.TemporaryDirectory() as folder, Memory(config, vault=Path(folder) / "vault") as memory:
        for n, conversation in enumerate(conversations, 1):
            added(conversation.turns.values(), _call(memory, conversation.name))
            memory.kernel.services.unread.finish()
            show(f"{kind}: read", n, len(conversations))
        every = [
            _Group(conversation.name, tuple(said_once(segment.cubes)))
            for conversation in conversations
            for segment in memory.kernel.within(conversation.name).segments()
        ]
        if len(every) < groups:
            raise InputError(
                f"{data} makes {len(every)} topic groups, and {groups} are to be drawn: give --groups less"
            )
        drawn = random.Random(seed).sample(every, groups)
        parts, least = memory.kernel.parts, config.distil.gate.askable
        by_rules = LessonMaker(parts.reader, parts.host(), config.distil.model_copy(update={"self_study": 0}))
        by_model = LessonMaker(parts.reader, parts.host(), config.distil)
        posed, asked = list[GroupLessons](), list[GroupLessons]()
        for n, group in enumerate(drawn, 1):
            posed.append(by_rules.of(group.cubes, checked=False))
            asked.append(by_model.of(group.cubes))
            show("asked", n, groups)
        rows = [_row("text", drawn, posed, by_rules, least), _row("model", drawn, asked, by_model, least)]
        outcomes = _promoted(memory, drawn, asked, by_model, gate, show)
        model = parts.host().describe()
    report = {"set": kind, "data": data.name, "model": model, "groups_in_all": len(every), "rows": rows}
    return report | {"outcomes": outcomes}


def _call(memory: Memory, user: str) -> Call:
    return lambda name, **given: dict(getattr(memory, name)(user_id=user, **given))


def _row(
    asked: str, drawn: Sequence[_Group], made: Sequence[GroupLessons], maker: LessonMaker, least: float
) -> dict[str, Any]:
    passed = [one for group, one in _pairs(drawn, made) if _passes(maker, group, one)]
    shares = [one.askable for one in made]
    statements = [statement for one in made for statement in one.statements]
    own = [found(x.probe, x.memories, group.texts) for group, one in _pairs(drawn, made) for x in one.lessons]
    beside = [*drawn[1:], drawn[0]]
    control = [found(x.probe, x.memories, other.texts) for other, one in _pairs(beside, made) for x in one.lessons]
    return {
        "asked": asked,
        "groups": len(drawn),
        "statements": len(statements),
        "questions": len(own),
        "askable": share([s.asked for s in statements]),
        "askable_mean": fmean(shares),
        "askable_min": min(shares),
        "refused": len(drawn) - len(passed),
        "unjudged": sum(one.askable < least or not any(x.probe.held_out for x in one.lessons) for one in passed),
        "own": share(own),
        "control": share(control),
    }


def _pairs(groups: Sequence[_Group], made: Sequence[GroupLessons]) -> Iterator[tuple[_Group, GroupLessons]]:
    return zip(groups, made, strict=True)


def found(probe: Probe, memories: Sequence[str], texts: Sequence[str]) -> bool:
    """True if one of the texts has the answer, and all words of the question that it shares with its memories."""
    shared = set(terms(probe.question)) & set(terms(" ".join(memories)))
    return any(probe.holds(text) and shared <= set(terms(text)) for text in texts)


def _passes(maker: LessonMaker, group: _Group, made: GroupLessons) -> bool:
    """True where a promotion would begin to train."""
    try:
        maker.require(made, group.cubes)
    except NoProbes:
        return False
    return True


def _promoted(
    memory: Memory, drawn: Sequence[_Group], asked: Sequence[GroupLessons], maker: LessonMaker, gate: int, show: Show
) -> dict[str, int]:
    passing = [(group, _passes(maker, group, one)) for group, one in _pairs(drawn, asked)]
    some = [*[g for g, passes in passing if passes][:gate], *[g for g, passes in passing if not passes][:gate]]
    outcomes = Counter[str]()
    for n, group in enumerate(some, 1):
        try:
            memory.kernel.within(group.user).promote([cube.id for cube in group.cubes], Form.PARAMETRIC)
            outcomes["published"] += 1
        except MemosError as error:
            outcomes[REFUSED.get(type(error), type(error).__name__)] += 1
        show("promoted", n, len(some))
    return dict(outcomes)
