"""What is asked of language to teach memories: which questions they answer, and that no two answer one differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from memos.cube import Contrast, Fact, Lesson, MemCube, Probe, Text
from memos.errors import Contradiction
from memos.extensions import Registry
from memos.operation.life.knowledge import text_of
from memos.operation.policies.policy import asks, terms

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

LEAST_TERMS = 3  # what has fewer different terms, as "Sounds fun!" has, states nothing that could be told from another


@dataclass(frozen=True)
class GroupStatement:
    """A sentence of a memory that states something, without its speaker. asked: a question for training and one that
    is held out ask about it."""

    memory: str  # its text
    words: str
    speaker: str = ""
    said: datetime | None = None
    asked: bool = False


# The statements of all memories of a group -> questions about those that are not asked about yet. The same questions
# for the same statements, each with an answer that stands in its memory.
AskAbout = Callable[[Sequence[GroupStatement]], Mapping[GroupStatement, Sequence[Probe]]]
QUESTIONS: Registry[AskAbout] = Registry("memos.questions", "maker of questions")  # by distil.questions
# A model, a memory, how many questions, in how many other forms each -> what the model asks about it, not checked yet.
Study = Callable[["Host", str, int, int], Sequence[Probe]]
STUDIES: Registry[Study] = Registry("memos.self_study", "self-study")


class LessonReader(Protocol):
    """What is asked of language here: the questions that teach memories and prove that they were learnt."""

    def facts(self, text: str) -> tuple[Fact, ...]: ...

    def askable(self, facts: Iterable[Fact]) -> list[Fact]:
        """Those that a question has for its answer."""

    def probes(self, facts: Iterable[Fact]) -> list[Probe]: ...

    def sentences(self, text: str) -> list[str]:
        """Those of a memory, without its speaker."""

    def lessons(self, memories: Sequence[Text]) -> list[Lesson]: ...

    def contrasts(self, facts: Sequence[Fact], known: Sequence[str], seed: int) -> list[Contrast]:
        """Prompts whose answers an adapter of these facts must not change."""


def require_agreement(reader: LessonReader, sources: Sequence[MemCube]) -> None:
    """Raises Contradiction where two memories answer one question differently: conflicts are resolved in text."""
    answers: dict[tuple[str, str], tuple[str, MemCube]] = {}
    for cube in sources:
        for fact in reader.askable(text_of(cube).facts):
            about = fact.subject.casefold(), fact.relation
            other, at = answers.setdefault(about, (fact.object, cube))
            if other.casefold() != fact.object.casefold():
                raise Contradiction(
                    f"{at.id} says {at.text!r} and {cube.id} says {cube.text!r}: only one of them can be learnt; "
                    f"correct or delete one, then promote"
                )


def statements_of(reader: LessonReader, cube: MemCube) -> list[GroupStatement]:
    """The sentences of a memory that state something."""
    text, about = text_of(cube), cube.header
    stating = [s for s in reader.sentences(text.text) if not asks(s) and len(set(terms(s))) >= LEAST_TERMS]
    if not stating and (text.facts or text.probes):  # as few words as "I adore tea." say what can be asked for
        stating = reader.sentences(text.text)[:1]
    return [GroupStatement(text.text, words, about.speaker, about.said) for words in stating]
