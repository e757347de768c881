"""Runs of words that a tagger marks in a message: their shape, what lies within which, and what is said in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memos.interface.reading.requests import wordings

DAYS = ("past", "ahead", "until")  # marks: days behind today, and others; ends


class TaggedSpan(Protocol):
    """Characters [begin, end) of a text with their label; sure: how likely it is."""

    @property
    def label(self) -> str: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def sure(self) -> float: ...


@dataclass(frozen=True)
class _ChangedSpan:
    label: str
    begin: int
    end: int
    sure: float


@dataclass(frozen=True)
class WholeQuestion(_ChangedSpan):
    """A sentence that asks one thing, whichever parts a tagger sees in it."""


def within(part: TaggedSpan, slots: Iterable[TaggedSpan]) -> list[TaggedSpan]:
    return [slot for slot in slots if part.begin <= slot.begin and slot.end <= part.end]


def uncut(text: str, spans: Sequence[TaggedSpan]) -> list[TaggedSpan]:
    """The spans, each with the whole of a list of weekdays that it ends in; nothing in such a list is a day by itself:
    "tues and thurs"."""
    lists, out = [match.span() for match in wordings.WEEKDAYS.finditer(text)], list[TaggedSpan]()
    for span in spans:
        begin = next((last for first, last in lists if first < span.begin < last), span.begin)
        end = next((last for first, last in lists if first < span.end < last), span.end)
        is_listed = span.label in DAYS and any(begin < last and first < end for first, last in lists)
        if begin < end and not is_listed:
            out.append(_ChangedSpan(span.label, begin, end, span.sure))
    return out


def joined(parts: Sequence[TaggedSpan], slots: Sequence[TaggedSpan]) -> list[TaggedSpan]:
    """The parts; two of a kind that touch are one, as sure as the less sure, where one has no words of its own."""
    out: list[TaggedSpan] = []
    for part in parts:
        last = out[-1] if out else None
        touches = last is not None and last.label == part.label and part.begin == last.end
        if last and touches and not all(within(p, slots) for p in (last, part)):
            out[-1] = _ChangedSpan(part.label, last.begin, part.end, min(last.sure, part.sure))
        else:
            out.append(part)
    return out


def questions(text: str, parts: Sequence[TaggedSpan]) -> list[TaggedSpan]:
    """The parts; a sentence that ends with a question mark is one question, unless it is an order, tells something
    first or asks twice ("where do I live and what is my cat called?"). What says how to reply to it is no part."""
    out, asked = list[TaggedSpan](), False
    for sentence in wordings.SENTENCE.finditer(text):
        (begin, end), words = sentence.span(), sentence[0].strip()
        inside = [part for part in parts if begin <= part.begin < end]
        labels = {part.label for part in inside} - {"talk"}
        if words.endswith(("?", "？")):
            asked = True
            told = {part.label for part in parts} - {"talk"} == {"remember"} and not labels
            beside = told and wordings.ASKS_MORE.match(words)
            if beside and out:  # what is told ends before it
                last = out[-1]
                out[-1] = _ChangedSpan(last.label, last.begin, min(last.end, begin), last.sure)
            if beside or (labels and labels <= {"recall", "remember"} and _is_one(text, begin, inside)):
                inside = [WholeQuestion("recall", begin, end, min((part.sure for part in inside), default=1.0))]
        elif asked and labels == {"remember"} and wordings.OF_REPLY.match(words):
            inside = []
        out += inside
    return out


def _is_one(text: str, begin: int, parts: Sequence[TaggedSpan]) -> bool:
    """True if a question, which begins there, supposes something, or has parts that ask nothing by themselves."""
    if wordings.SUPPOSES.match(text, begin):
        return True
    asking = [part for part in parts if part.label == "recall"]
    return len(asking) > 1 and not all(wordings.ASKS_ITSELF.match(text, part.begin) for part in asking)
