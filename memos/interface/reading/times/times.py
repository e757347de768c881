"""Resolves words for times to days, seen from the day of the turn, in English and the languages of plug-ins.

A day is "2026-03-06", a range of days "2026-03-02/2026-03-08"; weeks begin on Monday. A time that lies on both sides
is the nearest that fits.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

from memos.interface.reading.phrasebook import languages
from memos.interface.reading.times import times_en
from memos.interface.reading.times.days import iso, moved, shifted
from memos.lazy import pattern
from memos.skeleton import simplified

_ONLY_DAY = pattern(r"(\d{1,2})(?:st|nd|rd|th)\b(?! of)")
_BEFORE_DAY = pattern(r"^(?:(?:on|till|until|by|from) )?(?:the )?", re.IGNORECASE)
_BOUNDED = pattern(
    r"\s(?P<how>since|after|before|in|from|during|on)\s(?P<time>(?:(?!\b(?:since|after|before|in|from|during|on)\b)[^.?!])+?)(?P<end>[.?!\s]*)$",
    re.IGNORECASE,
)
WRITTEN = pattern(r"\((\d{4}-\d\d-\d\d)(?:/(\d{4}-\d\d-\d\d))?\)\W*$")  # behind the words of a memory
_TO = pattern(r"\s*(?:to|till|until|through|[-–—~到至])\s*(?:the )?")


@dataclass(frozen=True)
class FoundTime:
    """A time in a text: its days, and where it stands."""

    when: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Bounds:
    """The first and the last day of a time at the end of a text, and the text without it. is_since: up to now."""

    rest: str
    first: date
    last: date
    is_since: bool


def find(text: str, today: date, past: bool = False) -> FoundTime | None:
    """The first time that a text names. today: the day of its turn. past: it lies before that, where it could lie on
    both sides."""
    text = simplified(text)
    forms = (*times_en.FORMS, *(form for language in languages(text) for form in language.times))
    found = dict[tuple[int, int], FoundTime]()  # by where it begins, and by which form
    for n, (regex, resolve) in enumerate(forms):
        for match in regex.finditer(text):
            try:
                behind = past or match[0][:6].lower() == "since "
                days = resolve({k: v.lower() for k, v in match.groupdict().items() if v}, today, behind)
            except (ValueError, OverflowError):  # no calendar has that day
                continue
            if days:
                found[match.start(), n] = FoundTime(iso(days), match.span())
    if not found:
        return None
    first = found[min(found)]
    if to := _TO.match(text, first.span[1]):
        rest, opens = text[to.end() :], first.when.split("/")[0]
        begin, is_day = date.fromisoformat(opens), opens == first.when
        if is_day and (only := _day_of_month(rest)):  # of the same month, or the next
            with suppress(ValueError):
                there = moved(begin.replace(day=1), 1 if only[0] < begin.day else 0).replace(day=only[0])
                return FoundTime(iso((begin, there)), (first.span[0], to.end() + only[1]))
        word = ("on " if is_day else "in ") if re.match("[a-zA-Z]" if is_day else "[a-zA-Z0-9]", rest) else ""
        last = find(word + rest, today, past) if is_day else find(word + rest, begin)  # a month, or a year
        if last and last.span[0] == 0 and last.when > first.when:
            end = to.end() + last.span[1] - len(word)
            return FoundTime(f"{opens}/{last.when.split('/')[-1]}", (first.span[0], end))
    return first


def ahead(question: str, today: date) -> tuple[date, date] | None:
    """The first and the last of the days that a question names, if they are not over."""
    found = find(question, today)
    days = [date.fromisoformat(day) for day in found.when.split("/")] if found else []
    return (days[0], days[-1]) if days and days[-1] >= today else None


def bounds(text: str, today: date) -> Bounds | None:
    """The time that a text ends with, of which what is meant has been said; None where it ends with none that has
    begun."""
    if not (last := _BOUNDED.search(text)) or not (found := find(f"since {last['time']}", today, past=True)):
        return None
    if found.span[0] > len("since ") or found.span[1] < len("since " + last["time"]):
        return None
    begin, end = (date.fromisoformat(day) for day in (found.when.split("/") * 2)[:2])
    if begin > today:
        return None
    rest, how = text[: last.start()].rstrip(" ,") + last["end"], last["how"].lower()
    first, day = {
        "since": (begin, today),
        "after": (end + timedelta(1), today),
        "before": (date.min, begin - timedelta(1)),
    }.get(how, (begin, end))
    return Bounds(rest, first, day, how == "since")


def _day_of_month(text: str) -> tuple[int, int] | None:
    """(the day, where its words end) of a text that opens with a day of no month."""
    if only := _ONLY_DAY.match(text):
        return int(only[1]), only.end()
    return next((day for language in languages(text) if (day := language.day_of_month(text))), None)


def is_day_of_month(words: str) -> bool:
    """True of words that name a day of no month: "on the 9th"."""
    only = _day_of_month(bare := _BEFORE_DAY.sub("", words))
    return only is not None and only[1] == len(bare)


_UNTIL = pattern(
    r",?\s*\b(?:(?:but |and )?(?:only )?(?:until|till|til|through|up to|up until|valid until|no longer than|not longer than|expiring(?: on)?|ending(?: on)?|by)|(?P<for>for(?: the next| only| just)?))\s+(?P<time>[^,;.]+?)(?: only)?(?=$|[,;.!?]| then\b| and\b)",
    re.IGNORECASE,
)
_FOR = pattern(rf"(?:the next )?{times_en.N}?\s*(?P<unit>day|week|fortnight|month|year)s?", re.IGNORECASE)


def until(text: str, today: date) -> str:
    """The last day until when something shall hold; "" where the text names none that a calendar has."""
    with suppress(ValueError, OverflowError):
        return _until(text, today)
    return ""


def _until(text: str, today: date) -> str:
    for match in _UNTIL.finditer(text):
        if match["for"]:
            if (spell := _FOR.fullmatch(match["time"].strip())) and (spell["n"] or "next" in match[0]):
                return iso(shifted(today, times_en.number((spell["n"] or "a").lower()), spell["unit"].lower(), False))
            continue
        if found := find(f"until {match['time']}", today):
            return found.when.split("/")[-1]
    return next((day for language in languages(text) if (day := language.until(text, today))), "")


def is_dated(words: str) -> bool:
    """True where the day that words name is the same whenever they are said."""
    found = [find(words, day) for day in (date(2001, 1, 3), date(2014, 8, 20))]
    return None not in found and len({time.when for time in found if time}) == 1
