"""Generative Agents (2304.03442): a memory stream, found by recency, importance and relevance, and reflections on it.

    turn -> its importance, 1 to 10                                                  (section 4.1)
    importances add up to 150 since the last reflection -> 3 questions on the latest 100 memories -> what is retrieved
    for each -> 5 insights, each with the memories that it rests on                  (section 4.2)
    query -> what scores most by the three, each normalised to 0..1 over all memories

The turns are the stream. With rules as writer, importance is counted from words, the questions are the most
important of the latest turns that no insight quotes yet, and the insight is what is retrieved for one, quoted, a line
for each turn. What differs from the paper: no plans are made; a retrieval counts as one only where an answer was given
from it; and the three are weighed as in the authors' code (recency 0.5, importance 2, relevance 3; half and a
quarter of these where rules rate, which is rough), where the paper has 1 for each: `generative-agents-equal` has these.
`generative-agents-reflection` is without reflections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, MemCube
from memos.operation.policies.policy import Scores
from memos.plugins.curators.blocks import MAX_LINE, numbered
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Score, Writer, Writing
from memos.plugins.curators.rules import importance, said, shared_terms
from memos.plugins.curators.signals import CuratorSignals, Recalled

REFLECTION = "reflection"  # Header.kind
STREAM = (EPISODE, "passage", REFLECTION)
DUE = 150.0  # importances since the last reflection, from which one is due
LATEST = 100  # memories that the questions are asked about
QUESTIONS, INSIGHTS = 3, 5
RETRIEVED = 10  # for each question
QUOTED = 3  # turns in an insight by rules
ALIKE = 0.3  # share of terms from which two questions are about the same
DECAY = 0.995  # of recency, for each hour
# of recency, importance, relevance
WEIGHTS, WEIGHTS_BY_RULES, EQUAL = (0.5, 2.0, 3.0), (0.25, 0.5, 3.0), (1.0, 1.0, 1.0)
# numbers that are kept: with a turn on which nobody has reflected its importance, with what was retrieved the time
IMPORTANCE, UNREFLECTED, RETRIEVED_AT = "importance", "unreflected", "retrieved"

Weights = tuple[float, float, float]
Sentence = Annotated[str, Field(max_length=240)]
Number = Annotated[int, Field(ge=1, le=RETRIEVED)]


class Importance(BaseModel):
    rating: Annotated[int, Field(ge=1, le=10)]


class SalientQuestions(BaseModel):
    questions: Annotated[list[Sentence], Field(max_length=QUESTIONS)]


class Insight(BaseModel):
    text: Annotated[str, Field(max_length=900)]
    because_of: Annotated[list[Number], Field(max_length=RETRIEVED)]  # statements that it follows from


class Insights(BaseModel):
    insights: Annotated[list[Insight], Field(max_length=INSIGHTS)]


class GenerativeAgents(Curator):
    """weights: None for those of the writer at hand. reflects: False for the stream alone."""

    def __init__(self, weights: Weights | None = None, reflects: bool = True) -> None:
        self._weights, self._reflects = weights, reflects

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        rated = writer.fill_all([_rate(said(turn)) for turn in turns])
        waiting = view.scores(UNREFLECTED) if self._reflects else {}
        for turn, one in zip(turns, rated, strict=True):
            yield Score(id=turn.id, name=IMPORTANCE, value=float(one.rating))
            waiting[turn.id] = float(one.rating)
        if not self._reflects:
            return
        if sum(waiting.values()) < DUE:
            for turn in turns:
                yield Score(id=turn.id, name=UNREFLECTED, value=waiting[turn.id])
            return
        yield from self._reflect(turns, view, writer)
        for id in waiting.keys() - {turn.id for turn in turns}:
            yield Score(id=id, name=UNREFLECTED, value=None)

    def on_answer(
        self, question: str, answer: str, used: Sequence[MemCube], view: CuratorView, writer: Writer
    ) -> Iterator[CuratorOp]:
        for cube in used:
            yield Score(id=cube.id, name=RETRIEVED_AT, value=view.now.timestamp())

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        weights = self._weights or (WEIGHTS if writer.is_model else WEIGHTS_BY_RULES)
        return view.near(query, k, *STREAM, score=_by_all_three(view.now.timestamp(), weights))

    def _reflect(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        latest = view.memories(EPISODE, REFLECTION)[-LATEST:]
        for question in writer.fill(_ask(latest)).questions[:QUESTIONS]:
            found = view.at(*(one.id for one in self.find(question, RETRIEVED, view, writer)))
            if not found:
                continue
            for insight in writer.fill(_conclude(question, found)).insights:
                cited = [found[n - 1] for n in insight.because_of if n <= len(found)]
                if not cited or not insight.text.strip():
                    continue
                rests_on = dict.fromkeys(id for cube in cited for id in turns_of(cube))
                rating = float(writer.fill(_rate(insight.text)).rating)
                yield Keep(
                    text=insight.text,
                    kind=REFLECTION,
                    sources=tuple(rests_on),
                    tags=(question[:80],),
                    scores={IMPORTANCE: rating},
                )


def turns_of(cube: MemCube) -> tuple[str, ...]:
    """The turns that a memory tells: itself, or its sources."""
    return (cube.id,) if cube.header.kind == EPISODE else tuple(source.id for source in cube.sources)


def _by_all_three(now: float, weights: Weights) -> Callable[[CuratorSignals], Scores]:
    ranges = list[tuple[float, float]]()  # over all memories, which are scored before the best of them are once more

    def score(signals: CuratorSignals) -> Scores:
        since = np.minimum(signals.plain.age, now - signals.score(RETRIEVED_AT, -np.inf).astype(np.float64))
        hours = np.minimum(since / 3600, 1e5)
        rows: list[Scores] = [DECAY**hours, signals.score(IMPORTANCE, 1.0), signals.plain.near]
        if not ranges:
            ranges.extend((float(row.min()), float(row.max())) for row in rows)
        parts = [(row - low) / ((high - low) or 1.0) for row, (low, high) in zip(rows, ranges, strict=True)]
        return np.tensordot(weights, np.array(parts, np.float64), 1)

    return score


def _rate(text: str) -> Writing[Importance]:
    ask = (
        "On the scale of 1 to 10, where 1 is purely mundane (brushing teeth, making the bed) and 10 is extremely "
        "poignant (a break-up, being admitted to a college), rate the likely poignancy of this piece of memory.\n\n"
        f"Memory: {text[:1000]}"
    )
    return Writing("rate", ask, Importance, lambda: Importance(rating=round(importance(text))))


def _ask(latest: Sequence[MemCube]) -> Writing[SalientQuestions]:
    ask = (
        f"{numbered(latest)}\n\nGiven only the information above, what are the {QUESTIONS} most salient high-level "
        "questions that can be answered about the subjects in the statements?"
    )
    return Writing("ask questions", ask, SalientQuestions, lambda: SalientQuestions(questions=_weightiest(latest)))


def _weightiest(latest: Sequence[MemCube]) -> list[str]:
    """The most important turns that no insight quotes yet and that say different things."""
    quoted = {id for cube in latest if cube.header.kind == REFLECTION for id in turns_of(cube)}
    lines = [_line(cube) for cube in latest if cube.header.kind == EPISODE and cube.id not in quoted]
    taken = list[str]()
    for line in sorted(lines, key=importance, reverse=True):
        if all(shared_terms(line, other) < ALIKE for other in taken):
            taken.append(line)
    return taken[:QUESTIONS]


def _conclude(question: str, found: Sequence[MemCube]) -> Writing[Insights]:
    ask = (
        f"Question: {question}\n\nStatements:\n{numbered(found)}\n\nWhat high-level insights can be inferred from "
        "the statements above? Give for each the numbers of the statements that it follows from."
    )
    return Writing("conclude", ask, Insights, lambda: Insights(insights=_quoted(found)))


def _quoted(found: Sequence[MemCube]) -> list[Insight]:
    """One: the best turns in the order of their saying."""
    best = [n for n, cube in enumerate(found) if cube.header.kind == EPISODE][:QUOTED]
    if len(best) < 2:
        return []
    best.sort(key=lambda n: found[n].order)
    return [Insight(text="\n".join(_line(found[n]) for n in best), because_of=[n + 1 for n in best])]


def _line(cube: MemCube) -> str:
    return said(cube)[:MAX_LINE]


def make(config: Config) -> GenerativeAgents:
    return GenerativeAgents()


def make_equal(config: Config) -> GenerativeAgents:
    return GenerativeAgents(weights=EQUAL)


def make_without_reflection(config: Config) -> GenerativeAgents:
    return GenerativeAgents(reflects=False)
