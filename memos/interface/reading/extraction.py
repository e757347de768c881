"""Asks a model, by a schema, what the rules cannot read, and reads its answer; knows no model.

The answer is held to the schema token by token, so it parses with any model: what it says may still be nonsense, and
what names no statement of the turn is no memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypedDict, cast

from memos.interface.reading.documents.parts import DialogueTurn, one_line

FEW = 3  # facts of an answer that a context of 2,048 tokens has room for
MAX_TURN = 1_000  # characters of a turn that are read

_ASK = (
    "Which facts worth remembering do these turns state? Think in a few words, then give for each fact the number of "
    "its turn, the fact as a sentence of its own, and whom it is about. Give none where there are none.\n\n{turns}"
)


class ExtractedFact(TypedDict):
    """A statement that the model finds. turn: its number in the prompt, from 1."""

    turn: int
    statement: str
    who: str


class Extraction(TypedDict):
    """An answer of the model, as `schema` has it."""

    reasoning: str
    facts: list[ExtractedFact]


def schema(facts: int = FEW, characters: int = 60) -> dict[str, object]:
    """Of one extraction: a short reasoning first. facts: at most; characters: of each text, at most."""
    text = {"type": "string", "maxLength": characters}
    fact = {
        "type": "object",
        "properties": {
            "turn": {"enum": list(range(1, 10))},
            "statement": text,
            "who": {"type": "string", "maxLength": 24},
        },
        "required": ["turn", "statement", "who"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"reasoning": text, "facts": {"type": "array", "items": fact, "maxItems": facts}},
        "required": ["reasoning", "facts"],
        "additionalProperties": False,
    }


def prompt(turns: Sequence[DialogueTurn]) -> list[dict[str, str]]:
    """Up to nine turns as one question."""
    lines = "\n".join(
        f"{n}. {turn.speaker}: {one_line(turn.content, MAX_TURN)}" for n, turn in enumerate(turns[:9], start=1)
    )
    return [{"role": "user", "content": _ASK.format(turns=lines)}]


def parsed(answer: str) -> Extraction | None:
    """The answer as the schema has it; None where it is no such thing."""
    try:
        extracted = json.loads(answer)
    except ValueError:
        return None
    facts = extracted.get("facts") if isinstance(extracted, dict) else None
    if not isinstance(facts, list) or not isinstance(extracted.get("reasoning"), str):
        return None
    known = all(
        isinstance(fact, dict) and isinstance(fact.get("statement"), str) and isinstance(fact.get("turn"), int)
        for fact in facts
    )
    return cast(Extraction, extracted) if known else None


def statements(extracted: Extraction) -> Iterator[tuple[int, str]]:
    """(number of the turn from 0, statement) of each fact of an answer as `parsed` gives it."""
    for fact in extracted["facts"]:
        if fact["statement"].strip():
            yield fact["turn"] - 1, fact["statement"].strip()
