"""G-Memory (arXiv 2506.07398): a memory of teams of agents, in three graphs over each other.

    interaction graph   what the agents of a team say to each other for one task, each utterance after the other
    query graph         the tasks, with how they ended, tied to tasks like them
    insight graph       what is to be learnt of tasks, tied to those that it was learnt of
    exchange -> a task with its utterances -> the tasks like it -> an insight, or support for one       (section 4.3)
    query    -> the nearest tasks -> one hop on to tasks like these -> up to insights, down to utterances  (section 4.2)

A task is what somebody asks of the others, up to what they ask next. With rules as writer, how it ended follows from
words of what was said last, the insight is the weightiest utterance of the others with that, and of the interactions
those that say nothing are left out. What differs from the paper: utterances are the turns as they were said, which are
ranked among each other by the query; an insight of the same kind of task is supported and not rewritten; insights are
not made anew for each agent's role, and a query that names an agent prefers what that one has said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.operation.policies.policy import terms
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Link, Writer, Writing
from memos.plugins.curators.rules import hybrid, importance, line
from memos.plugins.curators.signals import Recalled

QUERY, INSIGHT = "query", "insight"  # Header.kind
UTTERED, NEXT, LIKE, OF = "uttered", "next", "like", "learnt of"  # kinds of links
TEAM = 16  # utterances of a task that are tied
LIKE_FROM = 0.5  # cosine from which two tasks are like each other
SAME_FROM = 0.75  # from which an insight is supported by a task
MAX_LIKE = 3  # tasks that a new one is tied to
HOPS_FROM = 5  # nearest tasks from which the hops begin
INSIGHT_FROM = 0.35  # cosine from which an insight that was not reached is shown
SHOWN = 2  # insights for one query, at most
_SUCCESS = re.compile(
    r"\b(?:it works|works now|worked|solved|passed|passes|succeeded|fixed|correct)\b|成功|解决了", re.I
)
_FAILURE = re.compile(
    r"\b(?:failed|fails|error|wrong|does(?:n['’]t| not) work|did(?:n['’]t| not) work|broken)\b|失败", re.I
)
Sentence = Annotated[str, Field(max_length=300)]
Outcome = Literal["succeeded", "failed", "open"]


class TaskOutcome(BaseModel):
    """How a task ended, and what is to be learnt of it; "" for nothing."""

    outcome: Outcome
    insight: Sentence


class CoreUtterances(BaseModel):
    """Numbers of utterances, from 1."""

    numbers: Annotated[list[Annotated[int, Field(ge=1, le=64)]], Field(max_length=64)]


class GMemory(Curator):
    """The three graphs, of memories and links."""

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        turns = [turn for turn in turns if turn.words.strip()]
        if not turns:
            return
        task = line(turns[0], 300)
        said = "\n".join(line(turn, 1_000) for turn in turns[:TEAM])
        ask = (
            "How did this task of a team of agents end, and what is to be learnt of it, in one sentence? "
            f"Nothing is learnt of a task that is still open.\n\n{said}"
        )
        ended = writer.fill(Writing("judge a task", ask, TaskOutcome, lambda: _judged(turns)))
        near = view.near(task, MAX_LIKE, QUERY)
        yield Keep(
            text=task,
            kind=QUERY,
            sources=(turns[0].id,),
            name="#task",
            tags=(ended.outcome,),
            speaker=turns[0].header.speaker,
            thread=turns[0].header.thread,
        )
        for turn in turns[:TEAM]:
            yield Link(a="#task", b=turn.id, kind=UTTERED)
        for one, after in pairwise(turns[:TEAM]):
            yield Link(a=one.id, b=after.id, kind=NEXT)
        for like in near:
            if like.score >= LIKE_FROM:
                yield Link(a="#task", b=like.id, kind=LIKE, weight=like.score)
        if ended.insight.strip() and ended.outcome != "open":
            yield from _learnt(ended, turns, view)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        near = [one.id for one in view.near(query, k, QUERY)]
        hop = [end for link in view.links(*near[:HOPS_FROM]) if link.kind == LIKE for end in (link.a, link.b)]
        tasks = dict.fromkeys([*near, *hop])
        links = view.links(*tasks)
        up = {link.a for link in links if link.kind == OF and link.b in tasks}
        down = {link.b for link in links if link.kind == UTTERED and link.a in tasks}
        insights = [one for one in view.near(query, 4, INSIGHT) if one.id in up and one.score >= INSIGHT_FROM][:SHOWN]
        uttered = view.near(query, 4 * k, EPISODE, PASSAGE, score=hybrid)
        turns = {cube.id: cube for cube in view.at(*(one.id for one in uttered))}
        of = {id: cube.sources[0].id if cube.sources else id for id, cube in turns.items()}
        reached = [one for one in uttered if of.get(one.id) in down][: k - len(insights[: max(0, k - 1)])]
        return [*insights[: max(0, k - 1)], *_core(query, reached, turns, writer)]


def _learnt(ended: TaskOutcome, turns: Sequence[MemCube], view: CuratorView) -> Iterator[CuratorOp]:
    """A new insight, or support for one that is known."""
    known = {one.id: one.score for one in view.near(ended.insight, MAX_LIKE, INSIGHT)}
    for cube in view.at(*known):
        if known[cube.id] >= SAME_FROM and ended.outcome in cube.header.tags:
            yield Link(a=cube.id, b="#task", kind=OF)
            return
    told = max(turns, key=lambda turn: len(set(terms(ended.insight)) & set(terms(turn.words))))
    yield Keep(text=ended.insight, kind=INSIGHT, sources=(told.id,), name="#insight", tags=(ended.outcome,))
    yield Link(a="#insight", b="#task", kind=OF)


def _core(query: str, reached: Sequence[Recalled], turns: dict[str, MemCube], writer: Writer) -> list[Recalled]:
    """The interactions without what does not bear on the query."""
    shown = reached[:64]
    lines = "\n".join(f"{n}. {line(turns[one.id], 300)}" for n, one in enumerate(shown, start=1))
    ask = f"Which of these utterances bear on the query? Give their numbers.\n\n{query[:2_000]}\n\n{lines}"
    telling = [n for n, one in enumerate(shown, start=1) if len(set(terms(turns[one.id].words))) > 1]
    rule = CoreUtterances(numbers=telling)
    kept = writer.fill(Writing("leave out the rest", ask, CoreUtterances, lambda: rule)).numbers if shown else []
    return [shown[n - 1] for n in sorted(set(kept)) if n <= len(shown)]


def _judged(turns: Sequence[MemCube]) -> TaskOutcome:
    last, asker = turns[-1].words[-1_000:], turns[0].header.speaker
    outcome: Outcome = "failed" if _FAILURE.search(last) else "succeeded" if _SUCCESS.search(last) else "open"
    others = [turn for turn in turns[1:] if turn.header.speaker != asker]
    if len(others) < 2 or outcome == "open":  # nobody has done anything about which the last could speak
        return TaskOutcome(outcome=outcome, insight="")
    best = max(others[:-1], key=lambda turn: importance(turn.words[:1_000]))
    task = line(turns[0], 120)
    return TaskOutcome(outcome=outcome, insight=f"{task} This {outcome}: {line(best, 160)}"[:300])


def make(config: Config) -> GMemory:
    return GMemory()
