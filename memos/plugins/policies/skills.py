"""Skills and insights of what an agent has done: Voyager (arXiv 2305.16291, section 2.2) and ExpeL (2308.10144).

    a call of a tool that succeeds -> a skill: the task, and the call that did it                (Voyager)
    one that fails                 -> an insight: what does not work, and why
    a success after failures       -> an insight of the pair: what works where the other did not  (ExpeL, section 4.2)
    each trace is held against the nearest that are known -> ADD, EDIT, UPVOTE, DOWNVOTE
    a task -> skills and insights by meaning and votes, before the traces and turns that are like it

Each begins with two votes and is forgotten when it has none (ExpeL, section 4.2). With rules as writer, the same tool
and the same outcome is an upvote, the same call with the other outcome a downvote, anything else is added; nothing is
generalised beyond the call. What differs: traces come one by one, so that pairs are made of what failed earlier at the
same task, and there are no lists of successes; a skill is a call and not a program, so none is made of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.operation.policies.policy import Floats
from memos.plugins.curators.curator import (
    Curator,
    CuratorOp,
    CuratorView,
    ForgetMemory,
    Keep,
    Revise,
    Score,
    Writer,
    Writing,
)
from memos.plugins.curators.rules import hybrid
from memos.plugins.curators.signals import CuratorSignals, Recalled

SKILL, INSIGHT = "skill", "insight"  # Header.kind
TOOL_TRACE = "tool-trace"  # that of a call of a tool, as the reader keeps it
VOTES = "votes"  # name of a number that is kept with each
FIRST_VOTES = 2.0
NEAREST = 10  # that a trace is held against
RELATED = 0.35  # cosine from which one has to do with a task
FAILED, WORKED = "failed", "worked"  # tags
_TRACE = re.compile(
    r"(?P<tool>[\w./-]+)\((?P<given>.*?)\) was called; "
    r"(?:it returned (?P<result>.*)|it failed: (?P<error>.*)|no result is recorded)",
    re.DOTALL,
)
Sentence = Annotated[str, Field(max_length=300)]


class ToolTrace(NamedTuple):
    """One call of a tool, as the reader has written it down."""

    task: str
    tool: str
    call: str
    error: str | None
    worked: bool


class SkillChange(BaseModel):
    """about: the number of the one that it changes, from 1; 0 for none."""

    operation: Literal["ADD", "EDIT", "UPVOTE", "DOWNVOTE"]
    about: Annotated[int, Field(ge=0, le=NEAREST)]
    kind: Literal["skill", "insight"]
    text: Sentence


class SkillChanges(BaseModel):
    changes: Annotated[list[SkillChange], Field(max_length=4)]


class Skills(Curator):
    """Reads the traces of tools alone; what was said is found as it is."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        traces = [(turn, read) for turn in turns if turn.header.kind == TOOL_TRACE and (read := read_trace(turn))]
        done, votes = set[str](), view.scores(VOTES) if traces else {}
        for turn, trace in traces:
            known = view.at(*(o.id for o in view.near(f"{trace.task} {trace.call}"[:500], NEAREST, SKILL, INSIGHT)))
            tried = [one for one in view.memories(TOOL_TRACE) if one.order < turn.order]
            failures = [
                (one, was) for one in tried if (was := read_trace(one)) and was.task == trace.task and was.error
            ]
            rule = partial(_by_rule, trace, known, failures[-1][1] if failures else None)
            changes = writer.fill(
                Writing("learn of a trace", _learn(trace, failures, known), SkillChanges, rule)
            ).changes
            of_pair = (failures[-1][0].id,) if failures and trace.worked else ()
            for change in changes:
                about = known[change.about - 1] if 0 < change.about <= len(known) else None
                if change.operation == "ADD":
                    if change.text.strip():
                        sources = (turn.id, *of_pair) if change.kind == INSIGHT else (turn.id,)
                        tags = (f"tool:{trace.tool}", WORKED if trace.worked else FAILED)
                        scores = {VOTES: FIRST_VOTES}
                        yield Keep(text=change.text, kind=change.kind, sources=sources, tags=tags, scores=scores)
                elif about and about.id not in done:
                    done.add(about.id)
                    if change.operation == "EDIT":
                        if change.text.strip():
                            yield Revise(id=about.id, text=change.text, sources=(turn.id,))
                        continue
                    left = votes.get(about.id, FIRST_VOTES) + (1 if change.operation == "UPVOTE" else -1)
                    yield Score(id=about.id, name=VOTES, value=left)
                    if left <= 0:
                        yield ForgetMemory(id=about.id, why="it has no votes left")

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        learnt = [one for one in view.near(query, k // 2, SKILL, INSIGHT, score=_voted) if one.score >= RELATED]
        return [*learnt, *view.near(query, k - len(learnt), EPISODE, PASSAGE, TOOL_TRACE, score=hybrid)]


def read_trace(turn: MemCube) -> ToolTrace | None:
    """None for what is no call."""
    found = _TRACE.search(turn.text)
    if not found:
        return None
    call = f"{found['tool']}({' '.join(found['given'].split())[:120]})"
    task = " ".join(turn.header.segment.split())[:120]
    error = found["error"] and " ".join(found["error"].split()).rstrip(".")[:120]
    return ToolTrace(task, found["tool"], call, error, found["result"] is not None)


def _voted(signals: CuratorSignals) -> Floats:
    """By meaning; votes decide between what is about as near."""
    votes = signals.score(VOTES, FIRST_VOTES).clip(0, 10)
    return np.asarray(signals.plain.near + 0.02 * votes, np.float32)


def _by_rule(trace: ToolTrace, known: Sequence[MemCube], failed: ToolTrace | None) -> SkillChanges:
    changes = list[SkillChange]()
    if not (trace.worked or trace.error):
        return SkillChanges(changes=[])
    same = [(n, c) for n, c in enumerate(known, start=1) if f"tool:{trace.tool}" in c.header.tags]
    outcome = WORKED if trace.worked else FAILED
    said = {n: trace.call in cube.text for n, cube in same}
    for n, cube in same:
        if said[n] and outcome not in cube.header.tags:  # it was the other way then
            changes.append(SkillChange(operation="DOWNVOTE", about=n, kind=_kind(cube), text=""))
    reason = trace.error or ""
    agreeing = [n for n, cube in same if outcome in cube.header.tags and (said[n] or (reason and reason in cube.text))]
    if agreeing:
        about = agreeing[0]
        changes.append(SkillChange(operation="UPVOTE", about=about, kind=_kind(known[about - 1]), text=""))
    elif trace.error:
        text = f"{trace.call} fails: {trace.error}. It was called for: {trace.task}"
        changes.append(SkillChange(operation="ADD", about=0, kind="insight", text=text[:300]))
    else:
        text = f"{trace.task}: {trace.call} does it."
        changes.append(SkillChange(operation="ADD", about=0, kind="skill", text=text[:300]))
    if trace.worked and failed and failed.call != trace.call and not agreeing:
        text = f"{trace.task}: {trace.call} works where {failed.call} failed ({failed.error})."
        changes.append(SkillChange(operation="ADD", about=0, kind="insight", text=text[:300]))
    return SkillChanges(changes=changes[:4])


def _kind(cube: MemCube) -> Literal["skill", "insight"]:
    return "skill" if cube.header.kind == SKILL else "insight"


def _learn(trace: ToolTrace, failures: Sequence[tuple[MemCube, ToolTrace]], known: Sequence[MemCube]) -> str:
    before = "\n".join(f"{was.call} failed: {was.error}" for _, was in failures[-5:])
    lines = "\n".join(f"{n}. {cube.text}" for n, cube in enumerate(known, start=1))
    outcome = "It succeeded." if trace.worked else f"It failed: {trace.error}"
    return (
        "What is to be learnt of this call, for tasks like it? ADD a skill (how the task is done) or an insight "
        "(what to do or to avoid, in general words), EDIT, UPVOTE or DOWNVOTE one that is known, by its number.\n\n"
        f"Task: {trace.task}\n{trace.call}\n{outcome}\n\nBefore:\n{before}\n\nKnown:\n{lines}"
    )


def make(config: Config) -> Skills:
    return Skills()
