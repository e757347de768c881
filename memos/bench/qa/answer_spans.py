"""The span of a sentence that an answer is likeliest to share its words with.

Each word is worth how likely it is to stand in an answer, by rules; the span is the one with the best expected F1 for
an answer of the length that is usual for such a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memos.bench.qa.asked import WORD, Asked, Kind
from memos.lazy import pattern
from memos.operation.policies.policy import STOP, terms

FREE = frozenset("a an the and".split())  # which no score counts
_FILLERS = frozenset(
    """really very so just super pretty definitely totally always also actually truly honestly quite too still even
    well yeah yes yep no nope hey hi oh wow thanks thank sure okay ok haha lol hmm absolutely exactly glad sounds guess
    think know mean say said like let got get going gonna lot lots bit kind kinda sort much it's that's i'm i've i'll
    i'd you're we're they're there's he's she's don't can't it'll we've something anything everything thing things stuff
    one way time today lately recently now already ever never maybe btw check look take see""".split()
)
_KIN = frozenset(
    """mom mum mother dad father sister brother husband wife partner girlfriend boyfriend friend friends family
    grandma grandpa grandmother grandfather aunt uncle cousin son daughter kids children colleague colleagues boss
    mentor mentors coach teacher neighbor neighbour parents team""".split()
)
_PLACES = pattern(r"\b(?:in|at|to|from|near|on|by|around|inside|outside)\b", re.IGNORECASE)
_REASONS = pattern(
    r"\b(?:because|since|cause|so that|in order to|to|as|for|inspired by|thanks to|due to)\b", re.IGNORECASE
)
_CAPTION = pattern(r"^\[?(?:an? )?(?:photo(?:graph)?|picture|image|close[ -]up)(?:y)? of (?:an? )?", re.IGNORECASE)
NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty dozen hundred once twice both".split()
)
_TIMES = frozenset(
    """yesterday tomorrow tonight last next week weekend month year day days weeks months years ago morning night
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun""".split()
)
SHARED, FILLER, GRAMMAR, MATTER, NAME, AFTER = 0.12, 0.05, 0.1, 0.35, 0.2, 0.08
_LENGTHS = {Kind.WHO: 2.0, Kind.WHERE: 2.5, Kind.HOW_MANY: 1.5, Kind.WHY: 7.0, Kind.HOW: 5.0, Kind.LIST: 2.0}
_LENGTH = 4.0  # words of an answer
_MAX_WORDS = 80  # of a sentence that are looked at
_MAX_SPAN = 16


@dataclass(frozen=True)
class Span:
    text: str
    worth: float  # the expected F1, by the rules


def best_span(sentence: str, asked: Asked) -> Span:
    text = _CAPTION.sub("", sentence).rstrip("] ")
    words = list(WORD.finditer(text))[:_MAX_WORDS]
    if not words:
        return Span(text.strip(), 0.0)
    values, weights = _values(text, words, asked)
    usual, best = _LENGTHS.get(asked.kind, _LENGTH), (-1.0, 0, 1)
    for i in range(len(words)):
        worth = length = 0.0
        for j in range(i, min(len(words), i + _MAX_SPAN)):
            worth, length = worth + values[j], length + weights[j]
            best = max(best, (2 * worth / (length + usual), -i, j + 1))
    score, begin, end = best
    return Span(text[words[-begin].start() : words[end - 1].end()], score)


def counted(sentence: str, asked: Asked) -> str:
    """A number before a word of the question; "" where there is none."""
    words = [word[0] for word in WORD.finditer(sentence)][:_MAX_WORDS]
    for n, word in enumerate(words):
        is_number = word.lower() in NUMBERS or word.isdigit()
        if is_number and set(terms(" ".join(words[n + 1 : n + 4]))) & set(asked.focus):
            return word
    return ""


def _values(text: str, words: list[re.Match[str]], asked: Asked) -> tuple[list[float], list[float]]:
    """(how likely each word stands in an answer, whether it counts)."""
    shared = [bool(set(terms(word[0])) & asked.all_terms) for word in words]
    last = max((n for n, of_both in enumerate(shared) if of_both), default=-1)
    values = []
    for n, word in enumerate(words):
        low = word[0].lower().replace("’", "'")
        if low in FREE:
            value = 0.0
        elif shared[n]:
            value = SHARED
        elif low in _FILLERS or low in _TIMES:
            value = FILLER
        elif low in STOP or ("'" in low and low.split("'")[1] not in ("s", "")):
            value = GRAMMAR
        else:
            value = MATTER + (NAME if _is_name(text, word) else 0.0) + _of_kind(text, word, low, asked.kind)
            if 0 <= last < n:
                value += AFTER / (1 + 0.2 * (n - last))
        values.append(value)
    return values, [float(word[0].lower() not in FREE) for word in words]


def _is_name(text: str, word: re.Match[str]) -> bool:
    """A capital or a quotation mark where no sentence begins."""
    before = text[: word.start()].rstrip()
    return bool(before) and (before[-1] in '"“' or (word[0][0].isupper() and before[-1] not in ".!?:"))


def _of_kind(text: str, word: re.Match[str], low: str, kind: Kind) -> float:
    capital = _is_name(text, word)
    before = text[max(0, word.start() - 24) : word.start()]
    match kind:
        case Kind.WHO:
            return 0.3 if capital or low in _KIN else -0.1
        case Kind.WHERE:
            return (0.2 if capital else 0.0) + (0.15 if _PLACES.search(before) else 0.0)
        case Kind.HOW_MANY:
            return 0.5 if low in NUMBERS or word[0][0].isdigit() else -0.15
        case Kind.WHY:
            return 0.1 if _REASONS.search(text[: word.start()]) else 0.0
    return 0.0
