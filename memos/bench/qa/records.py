"""What the parts of `memos bench qa` hand on: what was shown to whom answers, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from memos.bench.dialogues import UNANSWERABLE

UNKNOWN = "No information available"  # how an answer is refused: the words that LoCoMo's own scoring looks for


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shown(Value):
    """A memory that is shown: `text` as it stands in the prompt, `words` as they were said."""

    text: str
    words: str
    speaker: str = ""
    said: str = ""  # ISO 8601; "" where it is not known
    score: float = 0.0  # of the search that found it; higher is nearer


class Task(Value):
    """A question for one system, with what that system shows, best first. id: CONVERSATION/NUMBER."""

    id: str
    system: str
    question: str
    shown: tuple[Shown, ...] = ()
    choices: tuple[str, ...] = ()


class Answer(Value):
    """What was answered. confidence: from 0 to 1, where whoever answers says so. prompt: the SHA-256 of all that the
    model was asked. left_out: memories that did not fit. failed: why there is no answer; "" where there is one."""

    text: str = ""
    confidence: float | None = None
    prompt: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    calls: int = 0
    left_out: int = 0
    ttft_ms: float = 0.0
    seconds: float = 0.0
    failed: str = ""


class Record(Value):
    """One question, as it was asked and answered. corrected: the audited key's answer, where that is another."""

    id: str
    set: str
    conversation: str
    system: str
    via: str
    category: str
    question: str
    gold: str
    choices: tuple[str, ...] = ()
    corrected: str | None = None
    evidence: tuple[str, ...] = ()
    evidence_recall: float | None = None
    shown: tuple[Shown, ...] = Field((), exclude=True)  # stands in the run's shown/, once for all questions
    answer: Answer

    @property
    def unanswerable(self) -> bool:
        return self.category in UNANSWERABLE


class Answerer(Protocol):
    """Whoever answers: a sentence of what is shown, a local model, or an endpoint."""

    name: str  # as the report shows it

    def answer(self, tasks: Sequence[Task]) -> Iterable[Answer]:
        """One for each task, in their order, as they come. Raises MemosError for what no later task could survive."""
        ...


class LanguageModel(Answerer, Protocol):
    """One that can judge answers too."""

    def ask(self, prompts: Sequence[str]) -> list[str]:
        """What is said to each prompt as it stands; "" where nothing is. Raises MemosError."""
        ...


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
