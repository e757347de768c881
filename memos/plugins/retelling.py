"""Has the local model sum up turns in its own words, and drops what does not keep to them; knows no stores.

A name or a number that nobody said, another language, and words that are not of these turns show that a summary is made
up. What it gets wrong by other words is not seen here: it is trusted as a model is, and names all that it was made of.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Protocol

from memos.cube import MemCube, whose
from memos.interface.reading.documents.parts import one_line
from memos.interface.reading.phrasebook import language, sentences
from memos.operation.policies.policy import terms

MIN_CHARS = 40  # shorter is no summary
SIZES = ((600, 400), (300, 150), (150, 40))  # characters of a summary, and of each turn, as far as the context has room
OWN_TERMS = 0.5  # at least, of a summary's terms, stand in the turns
_ASK = (
    "Sum up this conversation in two to four sentences. Say who said, did or plans what. Use only names, numbers and "
    "dates that stand in it, begin each sentence with a name, and write in its language.\n\n{turns}"
)
_WORD, _NUMBER = re.compile(r"\w+"), re.compile(r"\d+")


class Extracts(Protocol):
    """A local model that is held to a schema."""

    def extract(self, prompts: Sequence[Sequence[dict[str, str]]], schema: Mapping[str, object]) -> list[str]:
        """See `Host.extract`."""
        ...


def retold(turns: Sequence[MemCube], model: Extracts) -> str:
    """What a model says of turns, which are as it may read them; "" where that does not keep to them, or where they do
    not fit its context. Raises MemosError."""
    for most, of_turn in SIZES:
        lines = [f"{whose(c.header.speaker or c.header.role, c.header.said)}: {c.words}" for c in turns]
        prompt = _ASK.format(turns="\n".join(one_line(line, of_turn) for line in lines))
        if answer := model.extract([[{"role": "user", "content": prompt}]], _schema(most))[0]:
            words = " ".join(_parsed(answer).split())
            return words if keeps_to(words, lines) else ""
    return ""


def keeps_to(summary: str, lines: Sequence[str]) -> bool:
    """True if a summary could be one of what these lines say: it is shorter than they are, in their language, each name
    and number stands in them, and so do at least OWN_TERMS of its terms."""
    summary, said = (unicodedata.normalize("NFKC", text) for text in (summary, "\n".join(lines)))
    if not MIN_CHARS <= len(summary) < len(said) or language(summary) != language(said) or "\ufffd" in summary:
        return False
    known, own = set(terms(said)), terms(summary, query=True)
    if not set(_NUMBER.findall(summary)) <= set(_NUMBER.findall(said)) or not _names_in(summary) <= known:
        return False
    return bool(own) and sum(term in known for term in own) >= OWN_TERMS * len(own)


def _names_in(text: str) -> set[str]:
    """The terms of words that are written as names are. Of a sentence's first word nobody can tell: it is one, too,
    unless it carries grammar alone, which is no term."""
    written = (word for sentence in sentences(text) for word in _WORD.findall(sentence) if word != word.lower())
    return {term for word in written for term in terms(word)}


def _schema(characters: int) -> dict[str, object]:
    summary = {"type": "string", "maxLength": characters}
    form = {"type": "object", "properties": {"summary": summary}, "required": ["summary"]}
    return form | {"additionalProperties": False}


def _parsed(answer: str) -> str:
    """The summary in an answer; "" where there is none."""
    try:
        found = json.loads(answer)
    except ValueError:
        return ""
    summary = found.get("summary") if isinstance(found, dict) else None
    return summary if isinstance(summary, str) else ""
