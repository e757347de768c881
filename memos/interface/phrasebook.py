"""Forms of words <-> (subject, relation, object). Knows English phrasings; knows no stores and no tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

_SLOT = re.compile(r"\{(s's|s|me|o|a|noun)\}|\[([^|\]]*)\|([^\]]*)\]")


@dataclass(frozen=True)
class Relation:
    """One relation and its forms, the generic ones included."""

    name: str
    noun: str
    says: tuple[str, ...]
    updates: tuple[str, ...]
    asks: tuple[str, ...]
    who: tuple[str, ...]

    def fill(self, form: str, subject: str, obj: str = "") -> str:
        """The form in words; the subject "I" gives the first person."""
        first = subject == "I"
        words = {
            "s": subject,
            "me": "me" if first else subject,
            "s's": "my" if first else f"{subject}'s",
            "o": obj,
            "a": "an" if obj[:1].lower() in "aeiou" else "a",
            "noun": self.noun,
        }
        text = _SLOT.sub(lambda m: words[m[1]] if m[1] else m[3] if first else m[2], form)
        return text[0].upper() + text[1:]


@cache
def phrasebook() -> dict[str, Relation]:
    """The relations of phrasebook.yaml by name, generic forms first."""
    book = yaml.safe_load(files("memos.interface").joinpath("phrasebook.yaml").read_text("utf-8"))
    kinds = ("says", "updates", "asks", "who")
    return {
        name: Relation(name, entry["noun"], *(tuple(book["generic"][k] + entry[k]) for k in kinds))
        for name, entry in book["relations"].items()
    }
