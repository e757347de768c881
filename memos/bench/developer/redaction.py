"""`memos bench redaction`: compares the identifiers found in English and Chinese sentences with a person's marks.

The sentences are in redaction.yaml, with dates, order numbers, versions and prices among them. On those that are held
out no rule was ever corrected. An identifier is found if its kind and its very place are told. No model runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from memos.config import RedactionConfig
from memos.infrastructure.guard.redaction import Identifier, Redactor
from memos.plugins.progress import Show

KINDS = ("phone", "email", "card", "iban", "national_id")
_MARKED = re.compile(r"\{(\w+):([^{}]+)\}")


@dataclass(frozen=True)
class Sentence:
    """A text, and where its identifiers stand."""

    language: str
    text: str
    identifiers: frozenset[Identifier]


def sentences() -> list[Sentence]:
    """In the order of the file."""
    book = yaml.safe_load(files("memos.bench.developer").joinpath("redaction.yaml").read_text("utf-8"))
    return [_read(language, line) for language, groups in book.items() for lines in groups.values() for line in lines]


def bench_redaction(show: Show) -> dict[str, Any]:
    """Precision and recall of all identifiers, by language and by kind."""
    redactor = Redactor(RedactionConfig(phone="label", email="label", card="label", iban="label", national_id="label"))
    told = sentences()
    redactor.find("+1 415-555-2671")  # the numbering plans are read once
    found, began = [], time.perf_counter()
    for n, sentence in enumerate(told, start=1):
        found.append(frozenset(redactor.find(sentence.text)))
        show("sentences", n, len(told))
    seconds = time.perf_counter() - began
    pairs = list(zip(told, found, strict=True))
    rows = [{"identifiers of": "all", **_figures(pairs, KINDS)}]
    for language in dict.fromkeys(sentence.language for sentence in told):
        rows.append({"identifiers of": language, **_figures([p for p in pairs if p[0].language == language], KINDS)})
    rows += [{"identifiers of": kind, **_figures(pairs, (kind,))} for kind in KINDS]
    return {
        "sentences": len(told),
        "without_identifiers": sum(not sentence.identifiers for sentence in told),
        "ms_each": seconds * 1e3 / len(told),
        "rows": rows,
        "failures": [
            {
                "language": sentence.language,
                "text": sentence.text,
                "missed": _told(sentence, sentence.identifiers - got),
                "wrong": _told(sentence, got - sentence.identifiers),
            }
            for sentence, got in pairs
            if got != sentence.identifiers
        ],
    }


def _read(language: str, line: str) -> Sentence:
    text, marked, at = "", list[Identifier](), 0
    for m in _MARKED.finditer(line):
        text += line[at : m.start()]
        marked.append(Identifier(m[1], len(text), len(text) + len(m[2])))
        text, at = text + m[2], m.end()
    return Sentence(language, text + line[at:], frozenset(marked))


def _figures(pairs: Iterable[tuple[Sentence, frozenset[Identifier]]], kinds: Iterable[str]) -> dict[str, Any]:
    chosen = set(kinds)
    both = [({i for i in s.identifiers if i.kind in chosen}, {i for i in got if i.kind in chosen}) for s, got in pairs]
    right = sum(len(wanted & got) for wanted, got in both)
    wanted, got = sum(len(w) for w, _ in both), sum(len(g) for _, g in both)
    return {
        "precision": right / got if got else 1.0,
        "recall": right / wanted if wanted else 1.0,
        "found": got,
        "wanted": wanted,
    }


def _told(sentence: Sentence, identifiers: Iterable[Identifier]) -> list[str]:
    return [f"{one.kind}: {sentence.text[one.start : one.end]}" for one in sorted(identifiers)]
