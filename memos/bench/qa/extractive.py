"""Answers without a language model: a span, a date or a sentence of what is shown, or that nothing is there.

The sentences shown are ranked by the embedder, by the words that they share with the question, and by who speaks: what
somebody says of himself answers questions about him. Where the best of them is about somebody else, there is no answer.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np

from memos.bench.qa import answer_times
from memos.bench.qa.answer_spans import best_span, counted
from memos.bench.qa.asked import YOU, Asked, Kind, names, read_question
from memos.bench.qa.records import UNKNOWN, Answer, Shown, Task, digest
from memos.infrastructure.host.encoders.bert import Floats
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.interface.reading.phrasebook import MAX_SENTENCE, sentences
from memos.interface.reading.requests.wordings import FIRST
from memos.operation.policies.policy import terms

SENTENCE, TOKENS, WORDS, TURN_WORDS, PLACE = 0.3, 0.6, 0.45, 0.2, 0.2  # what a sentence's score is made of
QUESTION = 0.6  # is taken off a sentence that asks
MARGIN = 0.05  # by which what is said of others may be better than what is said of whom the question is about
WORTH, LOOKED_AT = 0.8, 5  # of a span beside its sentence's score; sentences that are looked at for one
LISTED = 5  # spans of a list
MAX_CHARACTERS = 4 * MAX_SENTENCE  # of a memory that are read
TIMED = 0.1  # for a time where one is asked for
SURE, SELDOM = {Kind.WHEN: 0.95, Kind.YES_NO: 0.7, Kind.HOW_LONG: 0.5}, 0.35  # how often such answers are right


@dataclass(frozen=True)
class Sentence:
    """matter: stems of its words. tokens: [tokens, dim] of length 1."""

    text: str
    matter: frozenset[str]
    vector: Floats
    tokens: Floats


@dataclass(frozen=True)
class Statement:
    """A sentence of a memory that is shown. place: of the memory, the best being 0. around: stems of its words."""

    sentence: Sentence
    speaker: str
    said: date | None
    place: int
    around: frozenset[str]


class Extractive:
    name = "extractive"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._read: dict[str, list[Sentence]] = {}  # of each text: most are shown for many questions
        self._tokens: dict[str, int] = {}

    def answer(self, tasks: Sequence[Task]) -> list[Answer]:
        """One for each task, in their order. Raises MemosError where the embedder cannot be loaded."""
        return [self._answer(task) for task in tasks]

    def _answer(self, task: Task) -> Answer:
        began = time.perf_counter()
        statements = self._statements(task.shown)
        asked = read_question(task.question, {one.speaker for one in statements})
        text, confidence = self._found(asked, statements) if statements else (UNKNOWN, 0.0)
        seconds = time.perf_counter() - began
        prompt = "\n".join([task.question, *(one.text for one in task.shown)])
        return Answer(
            text=text,
            confidence=round(confidence, 4),  # beyond, it depends on what else was read in the same batch
            prompt=digest(prompt),
            prompt_tokens=self._count([one.text for one in task.shown]),
            answer_tokens=self._count([text]),
            ttft_ms=seconds * 1e3,
            seconds=seconds,
        )

    def _count(self, texts: Sequence[str]) -> int:
        new = [text for text in texts if text not in self._tokens]
        self._tokens.update(zip(new, self._embedder.counts(new), strict=True))
        return sum(self._tokens[text] for text in texts)

    # -- what is shown ---------------------------------------------------------------------------------------------

    def _statements(self, shown: Sequence[Shown]) -> list[Statement]:
        self._embed({one.words for one in shown} - self._read.keys())
        out = []
        for place, memory in enumerate(shown):
            said = datetime.fromisoformat(memory.said).date() if memory.said else None
            around = frozenset().union(*(one.matter for one in self._read[memory.words]))
            out += [Statement(one, memory.speaker, said, place, around) for one in self._read[memory.words]]
        return out

    def _embed(self, texts: set[str]) -> None:
        spans = [(text, begin, end) for text in sorted(texts) for begin, end in _places(text[:MAX_CHARACTERS])]
        readings = self._embedder.read(
            [text[:MAX_CHARACTERS] for text, *_ in spans], [(begin, end) for _, begin, end in spans]
        )
        self._read.update((text, []) for text in texts)
        for (text, begin, end), (vector, coarse) in zip(spans, readings, strict=True):
            part = text[begin:end]
            self._read[text].append(Sentence(part, frozenset(terms(part)), vector, _directions(coarse)))

    # -- ranking ---------------------------------------------------------------------------------------------------

    def _found(self, asked: Asked, statements: Sequence[Statement]) -> tuple[str, float]:
        scores = self._scores(asked, statements)
        ours = np.array([_is_about(one, asked) for one in statements])
        order = np.argsort(-np.where(ours, scores, scores - 10), kind="stable")
        best = float(scores[ours].max()) if ours.any() else -1.0
        others = float(scores[~ours].max()) if (~ours).any() else -1.0
        if asked.about and others - best > MARGIN:
            return UNKNOWN, _sigmoid(others - best)
        ranked = [statements[n] for n in order]
        text = _answer_of(asked, ranked, [float(scores[n]) for n in order])
        return text, SURE.get(asked.kind, SELDOM) * _sigmoid(best - 0.8)

    def _scores(self, asked: Asked, statements: Sequence[Statement]) -> Floats:
        [(vector, coarse)] = self._embedder.read([asked.plain])
        question = _directions(coarse)[1:-1]
        near = np.array([one.sentence.vector for one in statements]) @ vector
        tokens = np.concatenate([one.sentence.tokens for one in statements])
        starts = np.cumsum([0, *(len(one.sentence.tokens) for one in statements[:-1])])
        late = np.maximum.reduceat(tokens @ question.T, starts, axis=0).mean(1)
        common = Counter(term for one in statements for term in one.sentence.matter)
        rarity = {term: math.log(1 + len(statements) / (1 + common[term])) for term in asked.focus}
        whole = sum(rarity.values()) or 1.0
        words = np.array([sum(rarity[t] for t in rarity if t in one.sentence.matter) / whole for one in statements])
        turn = np.array([sum(rarity[t] for t in rarity if t in one.around) / whole for one in statements])
        place = np.array([1 / (1 + one.place / 10) for one in statements])
        asks = np.array([one.sentence.text.rstrip().endswith(("?", "？")) for one in statements])
        scores = SENTENCE * near + TOKENS * late + WORDS * words + TURN_WORDS * turn + PLACE * place - QUESTION * asks
        if asked.kind in (Kind.WHEN, Kind.HOW_LONG):
            scores = scores + TIMED * np.array([bool(_time(one, asked)) for one in statements])
        found: Floats = scores
        return found


def _is_about(one: Statement, asked: Asked) -> bool:
    """True if a sentence may be about whom the question names."""
    if not asked.about or not one.speaker:
        return True
    if one.speaker in asked.about:
        return True
    text = one.sentence.text
    named = any(names(text, name) for name in asked.about) or YOU.search(text)
    return bool(named) and not FIRST.search(text)


def _answer_of(asked: Asked, ranked: Sequence[Statement], scores: Sequence[float]) -> str:
    best = ranked[0]
    match asked.kind:
        case Kind.WHEN:
            timed = _time(best, asked)
            return timed or (answer_times.full(best.said) if best.said else best_span(best.sentence.text, asked).text)
        case Kind.HOW_LONG | Kind.HOW_OFTEN:
            for one in ranked[:LOOKED_AT]:
                if said := _time(one, asked):
                    return said
        case Kind.YES_NO:
            return "No" if " not " in best.sentence.text or "n't" in best.sentence.text else "Yes"
        case Kind.LIKELY:
            return "Likely yes"
        case Kind.HOW_MANY:
            for one in ranked[:LOOKED_AT]:
                if count := counted(one.sentence.text, asked):
                    return count
        case Kind.LIST:
            spans = [best_span(one.sentence.text, asked).text for one in ranked[:LISTED]]
            return ", ".join(dict.fromkeys(spans))
    found = [
        (best_span(one.sentence.text, asked), score) for one, score in zip(ranked[:LOOKED_AT], scores, strict=False)
    ]
    return max(found, key=lambda of_one: WORTH * of_one[0].worth + of_one[1])[0].text or UNKNOWN


def _time(one: Statement, asked: Asked) -> str:
    text = one.sentence.text
    match asked.kind:
        case Kind.WHEN:
            return answer_times.when(text, one.said) if one.said else ""
        case Kind.HOW_LONG:
            return answer_times.spell(text)
        case Kind.HOW_OFTEN:
            return answer_times.often(text)
    return ""


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-5 * x))


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end; what is in brackets, as a caption is, stands for itself."""
    at = 0
    for sentence in sentences(text.replace(" [", "\n[")) or [text]:
        for part in range(0, len(sentence), MAX_SENTENCE):
            piece = sentence[part : part + MAX_SENTENCE]
            at = text.index(piece, at)
            yield at, at + len(piece)
            at += len(piece)


def _directions(coarse: np.ndarray) -> Floats:
    """Vectors of length 1. coarse: [tokens, dim] int8."""
    whole = coarse.astype(np.float32)
    found: Floats = whole / np.maximum(np.linalg.norm(whole, axis=-1, keepdims=True), 1e-9)
    return found
