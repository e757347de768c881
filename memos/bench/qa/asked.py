"""What a question asks for: its kind, whom it is about, and the words that an answer's sentence may share with it."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from memos.interface.reading.requests.wordings import FIRST
from memos.lazy import pattern
from memos.operation.policies.policy import terms

WORD = pattern(r"[^\W_](?:[\w'’&.-]*[^\W_])?")
YOU = pattern(r"\b(?:you|your|yours|yourself|y['’]?all|u|ur)\b|[你您]", re.IGNORECASE)
USER = "user"  # who speaks in a chat with an assistant, and asks


class Kind(Enum):
    WHEN = "when"
    HOW_LONG = "how long"
    HOW_MANY = "how many"
    HOW_OFTEN = "how often"
    WHO = "who"
    WHERE = "where"
    WHY = "why"
    LIKELY = "likely"  # what nobody has said
    YES_NO = "yes or no"
    LIST = "list"
    HOW = "how"
    WHAT = "what"


_PLACES = "city|cities|country|countries|state|states|place|places|town|towns|area|location|locations"
_PREPOSITION = r"(?:(?:in|on|at|to|from|for|with|by|of|since|until|during|around|near)\s+)?"
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, pattern(words, re.IGNORECASE))
    for kind, words in (
        (Kind.LIKELY, r"^(?:would|might|could)\b"),
        (
            Kind.WHEN,
            rf"^{_PREPOSITION}(?:when\b|(?:what|which)\s+(?:\w+\s+)?(?:date|day|month|year|weekend|week)s?\b|what time\b)"
            r"|什么时候|何时|哪[天年月]",
        ),
        (Kind.HOW_LONG, rf"^{_PREPOSITION}how\s+(?:long|old)\b|多久|多长时间"),
        (Kind.HOW_OFTEN, r"^how\s+(?:often|frequently|regularly)\b"),
        (Kind.HOW_MANY, r"^how\s+(?:many|much)\b|多少|几[个次]"),
        (Kind.WHO, rf"^{_PREPOSITION}who(?:m|se)?\b|谁"),
        (Kind.WHERE, rf"^{_PREPOSITION}(?:where\b|(?:what|which)\s+(?:\w+\s+)?(?:{_PLACES})\b)|哪里|哪儿|什么地方"),
        (Kind.WHY, r"^(?:why\b|what(?:['’]s|\s+(?:is|was|are|were))\s+(?:\w+['’]s\s+|the\s+)?reason|for what)|为什么"),
        (Kind.YES_NO, r"^(?:is|are|was|were|do|does|did|has|have|had|can|will|should)\b|吗[？?]?$"),
        (Kind.HOW, r"^(?:and\s+)?how\b"),
        (Kind.LIST, r"^(?:in |on |for |with )?(?:what|which)\b.*?\b(?:ways|types|kinds|some|all|both)\b"),
        (
            Kind.LIST,
            r"^(?:in |on |for |with )?(?:what|which)\s+(?:[\w'’/&+-]+\s+){0,3}?[a-z][\w/-]*[^\Ws](?<!thi)(?<!i)s\s+(?:has|have|had|do|does|did|is|are|were|was|can)\b",
        ),
        (Kind.LIST, r"^what\s+(?:has|have)\b|^what\s+do(?:es)?\b.*\b(?:like|enjoy)\b"),
    )
)
_NO_FOCUS = frozenset(
    terms(
        """kind type sort way thing many much long often name know say said tell told mention mentioned describe
        according recently current currently new person people someone feel think get got go went going make made take
        did does year date day month time would likely might consider considered"""
    )
)


@dataclass(frozen=True)
class Asked:
    """kind: what is wanted. about: the speakers that it names. focus: stems of its words that carry matter. plain: the
    question without those names, as nobody says his own."""

    kind: Kind
    about: frozenset[str]
    focus: tuple[str, ...]
    all_terms: frozenset[str]
    plain: str


def read_question(question: str, speakers: Iterable[str]) -> Asked:
    """speakers: all who speak in what is shown."""
    named = {speaker for speaker in speakers if speaker and names(question, speaker)}
    chatting = {speaker for speaker in speakers if speaker.lower() == USER and FIRST.search(question)}
    plain = question
    for speaker in named:
        plain = _name(speaker).sub(" ", plain)
    plain = " ".join(plain.split())
    kind = next((kind for kind, words in _KINDS if words.search(question.strip())), Kind.WHAT)
    every = terms(plain, query=True)
    focus = tuple(dict.fromkeys(term for term in every if term not in _NO_FOCUS))
    return Asked(kind, frozenset(named | chatting), focus or tuple(every), frozenset(every), plain or question)


def names(text: str, speaker: str) -> bool:
    return bool(_name(speaker).search(text))


def _name(speaker: str) -> re.Pattern[str]:
    """A name or its first three letters, as friends call each other, with what makes it a possessive."""
    first = speaker.split()[0]
    short = rf"|{re.escape(first[:3])}" if len(first) > 4 else ""
    edge = r"\b" if first.isascii() else ""
    return re.compile(rf"{edge}(?:{re.escape(speaker)}|{re.escape(first)}{short})(?:['’]s)?{edge}", re.IGNORECASE)
