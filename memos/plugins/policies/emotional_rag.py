"""Emotional RAG (arXiv 2410.23041): a memory is retrieved by what it says and by the mood that it was said in.

    turn  -> its emotions, one number for each of Plutchik's eight -> kept with it               (section 3.2)
    query -> its emotions -> similarity of meaning and of emotions, combined                     (section 3.3)

The turns are the memories. With rules as writer, emotions are cosines with words for them; a model gives 1 to 10 for
each, as in the paper. Of these, those that stand out are kept. What differs from the paper: meaning is compared by
cosine, where it has the Euclidean distance of vectors, which orders alike; and a query in which a model sees no emotion
at all is answered by meaning alone.

The two are combined by `add` (C-A of the paper), which weighs emotions less as those of rules are rough;
`emotional-rag-multiply` (C-M) multiplies them, `emotional-rag-sequential` (S-S) takes the best by meaning and orders
these by emotions, and `emotional-rag-emotion` is without emotions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field

from memos.config import Config
from memos.cube import EPISODE, PASSAGE, MemCube
from memos.operation.policies.policy import Floats, Scores
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Score, Writer, Writing
from memos.plugins.curators.rules import EMOTIONS, said
from memos.plugins.curators.signals import CuratorSignals, Recalled

NAMES = tuple(words.split(",")[0] for words in EMOTIONS)  # of the numbers that are kept
WEIGHT = 0.1  # of emotions, where meaning has 1
FELT = 0.3  # share of a mood from which an emotion is kept
MAX_READ = 1_000  # characters
Combined = Literal["add", "multiply", "sequential", "meaning"]
Strength = Annotated[int, Field(ge=1, le=10)]


class Mood(BaseModel):
    """1 for none of it."""

    joy: Strength
    acceptance: Strength
    fear: Strength
    surprise: Strength
    sadness: Strength
    disgust: Strength
    anger: Strength
    anticipation: Strength


class EmotionalRAG(Curator):
    """combined: how similarities of meaning and of emotions become one."""

    def __init__(self, combined: Combined = "add") -> None:
        self._combined = combined

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        if self._combined == "meaning":
            return
        for turn, mood in zip(turns, _moods([said(turn) for turn in turns], view, writer), strict=True):
            for name, value in zip(NAMES, mood.tolist(), strict=True):
                if value >= FELT:
                    yield Score(id=turn.id, name=name, value=value)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        [mood] = _moods([query], view, writer) if self._combined != "meaning" else [np.zeros(len(NAMES), np.float32)]
        if not mood.any():
            return view.near(query, k, EPISODE, PASSAGE)
        found = view.near(query, k, EPISODE, PASSAGE, score=self._score(mood))
        if self._combined == "sequential":
            felt = {one.id: 0.0 for one in found}
            for name, value in zip(NAMES, mood.tolist(), strict=True):
                kept = view.scores(name) if value else {}
                felt |= {id: felt[id] + value * kept.get(id, 0.0) for id in felt}
            found.sort(key=lambda one: -felt[one.id])
        return found

    def _score(self, mood: Floats) -> Callable[[CuratorSignals], Scores]:
        def score(signals: CuratorSignals) -> Scores:
            meaning = signals.plain.near
            if self._combined == "sequential":
                return meaning
            asked = [(name, value) for name, value in zip(NAMES, mood.tolist(), strict=True) if value]
            alike = np.sum([value * signals.score(name) for name, value in asked], axis=0)
            return meaning * (1 + alike) if self._combined == "multiply" else meaning + WEIGHT * alike

        return score


def _moods(texts: Sequence[str], view: CuratorView, writer: Writer) -> list[Floats]:
    """[8] of each: of length 1, or 0 without a mood."""
    compared = cache(lambda: view.emotions([text[:MAX_READ] for text in texts]))

    def by_rule(n: int) -> Mood:
        return Mood(**{name: 1 + round(9 * value) for name, value in zip(NAMES, compared()[n].tolist(), strict=True)})

    writings = [Writing("feel", _ask(text), Mood, partial(by_rule, n)) for n, text in enumerate(texts)]
    strengths = [
        np.array([getattr(mood, name) - 1 for name in NAMES], np.float32) for mood in writer.fill_all(writings)
    ]
    return [one / max(float(np.linalg.norm(one)), 1.0) for one in strengths]


def _ask(text: str) -> str:
    return (
        "You know the emotions of people well. How strongly does this text show each of the eight emotions, from 1 for "
        f"not at all to 10?\n\n{text[:MAX_READ]}"
    )


def make(config: Config) -> EmotionalRAG:
    return EmotionalRAG()


def make_multiply(config: Config) -> EmotionalRAG:
    return EmotionalRAG("multiply")


def make_sequential(config: Config) -> EmotionalRAG:
    return EmotionalRAG("sequential")


def make_without_emotion(config: Config) -> EmotionalRAG:
    return EmotionalRAG("meaning")
