"""When, how long and how often: what a sentence says of it, as an answer does, seen from the day of its saying."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from datetime import date

from memos.interface.reading.times import times
from memos.lazy import pattern

_FEW = r"an?(?: few| couple(?: of)?)?|few|couple(?: of)?|several|some"
_COUNT = rf"(?:\d+|{_FEW}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|many)"
_UNIT = r"(?:second|minute|hour|day|night|weekend|week|fortnight|month|season|year|decade)s?"
_DURATION = pattern(
    rf"\b{_COUNT}(?:[ -]and[ -]a[ -]half)?[ -](?:\w+ )?{_UNIT}\b|\b\d+[ -]?(?:yrs?|hrs?|mins?)\b|[一二两三四五六七八九十几\d]+个?(?:半)?[天周月年小时]+",
    re.IGNORECASE,
)
_SINCE = pattern(r"\bsince (?:I was [\w ]+|(?:\w+ )?(?:19|20)\d\d|(?:my|the) [\w ]+)", re.IGNORECASE)
_OFTEN = pattern(
    rf"\b(?:once|twice|{_COUNT} times)(?: or twice)?(?: (?:an?|per|every|each) {_UNIT})?"
    rf"|\bevery (?:\w+ )?(?:{_UNIT}|morning|evening|\w+day)s?\b|\b(?:daily|weekly|monthly|yearly|regularly|rarely)\b",
    re.IGNORECASE,
)
_VAGUE = pattern(
    rf"\b(?P<time>(?:{_FEW}|two|three) (?:days|weekends|weeks|months|years)) (?:ago|back)\b", re.IGNORECASE
)
_AHEAD = pattern(r"\b(?:next|coming|following)\b")
_STEP = pattern(r"\b(?:last|past|previous|this|next|coming|following)\b")
_LONGEST = {1: "weekend", 6: "week"}  # a stretch of days more than one


def full(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def when(sentence: str, said: date, ahead: bool = False) -> str:
    """The first time that a sentence names; "" where it names none. ahead: what is asked for is to come."""
    vague, found = _VAGUE.search(sentence), times.find(sentence, said, past=not ahead)
    if vague and (found is None or vague.start() <= found.span[0]) and not (found and vague["time"][:1] in "t"):
        return f"{vague['time']} before {full(said)}"
    if found is None:
        return ""
    words = sentence[slice(*found.span)].lower()
    first, _, last = found.when.partition("/")
    begin, end = date.fromisoformat(first), date.fromisoformat(last or first)
    days, place = (end - begin).days, "after" if _AHEAD.search(words) else "of" if "this" in words else "before"
    if "year" in words and days == 0:  # so many years ago
        return str(begin.year)
    if _STEP.search(words) and "night" not in words and days in (0, *_LONGEST):
        name = f"{begin:%A}" if days == 0 else _LONGEST[days]
        return f"The {name} {place} {full(said)}"
    if days == 0:
        return full(begin)
    if days > 300:
        return str(begin.year)
    if days > 31:  # a season
        return f"{words.split()[-1] if not words[-1].isdigit() else words.split()[-2]} {begin.year}"
    return f"{begin:%B %Y}" if days > 20 else f"{full(begin)} to {full(end)}"


def spell(sentence: str) -> str:
    """How long something lasts or has lasted; "" where a sentence does not say."""
    found = _SINCE.search(sentence) or _DURATION.search(sentence)
    return found[0] if found else ""


def often(sentence: str) -> str:
    """How often; "" where a sentence does not say."""
    found = _OFTEN.search(sentence)
    return found[0] if found else ""
