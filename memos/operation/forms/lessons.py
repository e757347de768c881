"""What is asked of language to teach memories: which questions they answer, and that no two answer one differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from memos.cube import Contrast, Fact, Lesson, MemCube, Probe, Text
from memos.errors import Contradiction
from memos.operation.life.knowledge import text_of


class LessonReader(Protocol):
    """What is asked of language here: the questions that teach memories and prove that they were learnt."""

    def facts(self, text: str) -> tuple[Fact, ...]: ...

    def askable(self, facts: Iterable[Fact]) -> list[Fact]:
        """Those that a question has for its answer."""
        ...

    def probes(self, facts: Iterable[Fact]) -> list[Probe]: ...

    def lessons(self, memories: Sequence[Text]) -> list[Lesson]: ...

    def contrasts(self, facts: Sequence[Fact], known: Sequence[str], seed: int) -> list[Contrast]:
        """Prompts whose answers an adapter of these facts must not change."""
        ...


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
