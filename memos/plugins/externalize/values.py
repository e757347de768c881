"""What an adapter or KV is found to say, with the evidence for it, and what became of that; knows no model."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from memos.cube import Fact, Frozen

SURE = 0.5  # confidence from which a statement is kept


class Evidence(Frozen):
    """A question, and what was answered without the adapter and with it."""

    question: str
    without: str
    under: str


class Statement(Frozen):
    """support: of so many questions `asked`, how many were answered so, and otherwise without the adapter.

    likelihood, without: nats of the answer, mean over the questions for it and for its subject, with the adapter and
    without. confidence: mean probability with it. Of KV, which carries the tokens of its text, no question is asked.
    """

    text: str
    fact: Fact | None = None
    support: int = 0
    asked: int = 0
    likelihood: float = 0.0
    without: float = 0.0
    confidence: float = 1.0
    source: str = ""  # id of a memory that says so, or "card": the adapter's own; "" where nothing backs it
    evidence: tuple[Evidence, ...] = ()


class Externalized(Frozen):
    """What was found. kept: ids of the memories that were made, by the places of their statements; left: why others
    were not kept."""

    statements: tuple[Statement, ...]
    kept: dict[int, str] = Field(default_factory=dict)
    left: dict[int, str] = Field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A statement each, as JSON, with what became of it."""
        return [
            {**statement.model_dump(mode="json"), "kept": self.kept.get(place), "left": self.left.get(place)}
            for place, statement in enumerate(self.statements)
        ]
