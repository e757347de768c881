"""The words of times in English."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

from memos.interface.reading.times.days import (
    Days,
    Resolve,
    ago,
    first_day,
    moved,
    near,
    near_month,
    nth,
    of_month,
    shifted,
    week,
    whole_month,
)
from memos.lazy import pattern

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "couple of": 2, "three": 3, "four": 4, "five": 5, "six": 6,
    "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fourteen": 14, "twenty": 20, "thirty": 30,
}  # fmt: skip
_FEASTS: dict[str, Callable[[int], date]] = {
    name: (lambda year, month=month, day=day: date(year, month, day))
    for name, month, day in (
        ("christmas eve", 12, 24), ("christmas day", 12, 25), ("christmas", 12, 25), ("boxing day", 12, 26),
        ("xmas", 12, 25), ("new years eve", 12, 31), ("new years day", 1, 1), ("new year", 1, 1), ("nye", 12, 31),
        ("halloween", 10, 31), ("valentines day", 2, 14), ("valentines", 2, 14), ("bonfire night", 11, 5),
        ("st patricks day", 3, 17), ("may day", 5, 1), ("hogmanay", 12, 31),
    )
} | {"thanksgiving": lambda year: nth(year, 11, 3, 4)}  # fmt: skip
_NAMES = re.sub(r"s\b", "['’]?s", "|".join(sorted(_FEASTS, key=len, reverse=True)))
_FEAST = (  # with its apostrophe or without, and not what is named after it
    f"(?P<feast>{_NAMES})"
    r"(?![ -](?:tree|card|jumper|sweater|light|hat|cookie|present|gift|decoration|song|carol|pudding|cake|market|costume|bonus|ornament|movie|album)s?\b)"
)
_DAY = rf"(?P<day>{'|'.join(_DAYS)}|mon|tues?|weds?|thu(?:rs?)?|fri|sat|sun)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
N = rf"(?P<n>\d+|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_TH = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_ORDINALS = {
    word: n
    for n, word in enumerate(
        """zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
        fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth
        twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first""".split()
    )
}
_NTH = rf"(?P<d>\d{{1,2}}(?=st|nd|rd|th)|{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})(?:st|nd|rd|th)?"
_BY = r"(?:(?:on|until|till|til|by|before|since|for|from|of) )?"
_Y = r"(?P<y>(?:19|20)\d\d)"
_WHICH = r"(?P<which>last|past|this|next|coming|this coming|this past|the following|the coming|previous|the previous|the last|the next)"


def _step(which: str) -> int:
    return -1 if re.search("last|past|previous|上|去", which) else 1 if re.search("next|following|下|明", which) else 0


def _weekday(word: str) -> int:
    return next(n for n, day in enumerate(_DAYS) if day.startswith(word[:3]))


def number(word: str) -> int:
    return int(word) if word.isdigit() else (_NUMBERS | _ORDINALS)[word]


def _of_week(g: dict[str, str], today: date, past: bool) -> Days:
    """ "last Friday" is the latest one; "next Friday" that of the coming days, of the next week if it is near."""
    day, which = _weekday(g["day"]), g.get("which", "")
    ahead = (day - today.weekday()) % 7
    if _step(which) < 0 or (not which and past):
        return today - timedelta(days=(today.weekday() - day) % 7 or 7)
    if _step(which) > 0:
        return week(today, 1)[0] + timedelta(days=day)
    if which == "this" and not past:
        return week(today)[0] + timedelta(days=day)
    return today + timedelta(days=ahead or (0 if which else 7))


def _relative(g: dict[str, str], today: date, past: bool) -> Days:
    step, unit = _step(g["which"]), g["unit"]
    match unit:
        case "week":
            return week(today, step)
        case "weekend":
            monday = week(today, step)[0]
            return monday + timedelta(days=5), monday + timedelta(days=6)
        case "month":
            there = moved(today.replace(day=1), step)
            return whole_month(there.year, there.month)
        case "year":
            return date(today.year + step, 1, 1), date(today.year + step, 12, 31)
        case _:
            return today


def _season(g: dict[str, str], today: date, past: bool) -> Days:
    first, step = _SEASONS[g["season"]], _step(g.get("which", ""))
    if g.get("y"):
        year = int(g["y"])
    else:
        year = today.year
        begun, ended = date(year, first, 1) <= today, moved(date(year, first, 1), 3) <= today
        runs = moved(date(year - 1, first, 1), 3) > today  # the winter of last year
        if step < 0 or (not g.get("which") and past):
            year -= 0 if ended else 2 if runs else 1
        elif step == 0 and g.get("which") and runs:
            year -= 1
        elif step > 0 or (not g.get("which") and ended):
            year += 1 if begun else 0
    start = date(year, first, 1)
    return start, moved(start, 3) - timedelta(days=1)


def _dated(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = next(n for n, m in enumerate(_MONTHS, 1) if m.startswith(g["month"][:3])), number(g["d"])
    if "y" in g or "rel" in g:
        return date(int(g["y"]) if "y" in g else today.year + _step(g["rel"]), month, day)
    return near(lambda year: date(year, month, day), today, past)


def _in_month(g: dict[str, str], today: date, past: bool) -> Days:
    month = next(n for n, m in enumerate(_MONTHS, 1) if m.startswith(g["month"][:3]))
    if "y" in g:
        return whole_month(int(g["y"]), month)
    if which := g.get("which"):
        year = today.year + (
            -1 if _step(which) < 0 and month >= today.month else 1 if _step(which) > 0 and month <= today.month else 0
        )
        return whole_month(year, month)
    return near_month(month, today, past)


def _of_month(g: dict[str, str], today: date, past: bool) -> Days:
    return of_month(number(g["d"]), _step(g["which"]) if "which" in g else None, today, past)


def _days_of_month(g: dict[str, str], today: date, past: bool) -> Days:
    """ "the 6th to the 12th of April", "from the 20th to the 24th"."""
    last = (_dated if "month" in g else _of_month)(g, today, past)
    assert isinstance(last, date)  # both name one day
    day = int(g["d1"])
    return (last if day <= last.day else moved(last.replace(day=1), -1)).replace(day=day), last


def _end(g: dict[str, str], today: date, past: bool) -> Days:
    if g["unit"] in ("week", "month", "year"):
        return _relative({"which": "", **g}, today, past)[1]  # type: ignore[index]
    return _in_month({**g, "month": g["unit"]}, today, past)[1]  # type: ignore[index]


def _plus(days: int) -> Callable[[dict[str, str], date, bool], Days]:
    return lambda g, today, past: today + timedelta(days=days)


def _en(form: str) -> re.Pattern[str]:
    return pattern(rf"\b{form}\b", re.IGNORECASE)


FORMS: tuple[tuple[re.Pattern[str], Resolve], ...] = (
    (_en(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"), lambda g, t, p: date(int(g["y"]), int(g["m"]), int(g["d"]))),
    (_en(r"(?:the )?day before yesterday"), _plus(-2)),
    (_en(r"(?:the )?day after tomorrow"), _plus(2)),
    (_en(r"(?:y(?:ester)?day|ystd|last night)"), _plus(-1)),
    (_en(r"(?:tomorrow|tmrw|tmr|tomoz|2moro)"), _plus(1)),
    (_en(r"(?:today|tonight|this (?:morning|afternoon|evening))"), _plus(0)),
    (_en(rf"(?<!-){N} (?P<unit>day|night|week|fortnight|month|year)s? (?:ago|back|before(?! \w)|earlier)"),
     lambda g, t, p: ago(t, number(g["n"]), g["unit"])),
    (_en(rf"(?:in|after) {N} (?P<unit>day|week|fortnight|month|year)s?(?:['’]s?)?(?: time)?"),
     lambda g, t, p: None if p else shifted(t, number(g["n"]), g["unit"], False)),
    (_en(rf"{N} (?P<unit>day|week|fortnight|month|year)s? (?:from (?:now|today)|hence)"),
     lambda g, t, p: shifted(t, number(g["n"]), g["unit"], False)),
    (_en(r"a week (?:from|on) tomorrow"), _plus(8)),
    (_en(rf"(?:the )?(?:end|last day) of (?:{_WHICH} |the )?(?P<unit>week|month|year)"), _end),
    (_en(rf"(?:the )?(?:end|last day) of (?P<unit>{'|'.join(_MONTHS)})(?: {_Y})?"), _end),
    (_en(rf"(?:the )?week of (?:the )?{_TH} (?:of )?{_MONTH}"), lambda g, t, p: week(first_day(_dated(g, t, p)))),
    (_en(rf"{_BY}(?:the )?(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: to | till | until | through | and |[-–—])(?:the )?{_TH} (?:of )?{_MONTH}(?:,? {_Y})?"), _days_of_month),
    (_en(r"from the (?P<d1>\d{1,2})(?:st|nd|rd|th)(?: to | till | until )(?:the )?(?P<d>\d{1,2})(?:st|nd|rd|th)"), _days_of_month),
    (_en(rf"{_BY}{_MONTH} {_TH},? {_Y}"), _dated),
    (_en(rf"{_BY}(?:the )?{_TH} (?:of )?{_MONTH},? {_Y}"), _dated),
    (_en(rf"{_BY}{_MONTH} (?:the )?{_TH}(?! ?(?:am|pm|years|people))(?: (?P<rel>last|this|next) year)?"), _dated),
    (_en(rf"{_BY}(?:the )?{_TH} (?:of )?{_MONTH}(?: (?P<rel>last|this|next) year)?"), _dated),
    (_en(rf"{_BY}(?:the )?{_NTH} of {_MONTH}"), _dated),
    (_en(rf"{_BY}(?:the )?{_NTH} of (?:(?P<which>this|next|last) |the )month"), _of_month),
    (_en(r"(?P<which>this|next|last) month,? (?:on )?the (?P<d>\d{1,2})(?:st|nd|rd|th)"), _of_month),
    (_en(rf"{_BY}{_DAY},? (?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)(?! (?:of )?{_MONTH})"), _of_month),
    (_en(rf"(?:in )?(?:{_WHICH} )?{_MONTH}(?: of)? {_Y}"), _in_month),
    (_en(rf"{_WHICH} {_MONTH}"), _in_month),
    (_en(rf"(?:in|during|since|until|till|by|for|from|early|late|mid|all|whole|throughout)(?: of)? (?:early |late |mid-?)?{_MONTH}(?:,? (?:of )?{_Y})?"), _in_month),
    (_en(rf"{_BY}{_DAY} (?:of |in )?(?P<which>last|next|this) week"), lambda g, t, p: week(t, _step(g["which"]))[0] + timedelta(days=_weekday(g["day"]))),
    (_en(rf"(?P<which>last|next) week['’]?s? (?:on )?{_DAY}"), lambda g, t, p: week(t, _step(g["which"]))[0] + timedelta(days=_weekday(g["day"]))),
    (_en(rf"a week (?:on|from) {_DAY}"), lambda g, t, p: _of_week(g, t + timedelta(weeks=1), False)),
    (_en(rf"{_BY}{_DAY} week(?! ?[\d-])"), lambda g, t, p: _of_week(g, t + timedelta(weeks=1), False)),
    (_en(rf"{_BY}{_DAY} week"), lambda g, t, p: _of_week(g, t + timedelta(weeks=1), False)),
    (_en(r"(?P<n>a|one|two) (?P<unit>week|fortnight)s? today"), lambda g, t, p: shifted(t, number(g["n"]), g["unit"], False)),
    (_en(rf"{_WHICH} {_DAY}"), _of_week),
    (_en(rf"(?:on )?{_DAY} (?:just )?gone"), lambda g, t, p: _of_week(g, t, True)),
    (_en(r"(?:the )?(?P<unit>week|weekend|month) after next"), lambda g, t, p: _relative(g | {"which": "next"}, first_day(_relative(g | {"which": "next"}, t, p)), p)),
    (_en(rf"{_DAY} (?:now|instead|next$)"), _of_week),
    (_en(rf"(?:on|until|till|by|before|since|for|from|it['’]?s) {_DAY}(?!s)"), _of_week),
    (_en(rf"(?<!every )(?<!each ){_DAY}(?: (?:morning|afternoon|evening|night))?(?=[.!?,]|$)"), _of_week),
    (_en(rf"{_WHICH} (?P<unit>weekend|week|month|year)"), _relative),
    (_en(r"(?:on|over|at) the (?P<unit>weekend)"), lambda g, t, p: _relative({"which": "last" if p else "this", "unit": "weekend"}, t, p)),
    (_en(rf"(?:(?:in|during|over) )?(?:the )?(?:{_WHICH} )(?P<season>spring|summer|autumn|fall|winter)"), _season),
    (_en(rf"(?:in|during|over|since|until|by) (?:the )?(?P<season>spring|summer|autumn|fall|winter)(?: of)?(?: {_Y})?"), _season),
    (_en(rf"(?P<season>spring|summer|autumn|fall|winter)(?: of)? {_Y}"), _season),
    (_en(r"on the (?P<d>\d{1,2})(?:st|nd|rd|th)(?: of (?P<which>this|next|last) month|(?! of))"), _of_month),
    (_en(_FEAST), lambda g, t, p: near(_FEASTS[re.sub("['’]", "", g["feast"])], t, p)),
    (_en(rf"^{_BY}(?:all |the whole )?(?:of )?{_MONTH}$"), _in_month),
    (_en(rf"^{_BY}the {_NTH}$"), _of_month),
    (_en(rf"(?:in|since|until|during|back in|of|from) (?:early |late |mid-?)?{_Y}"), lambda g, t, p: (date(int(g["y"]), 1, 1), date(int(g["y"]), 12, 31))),
    (pattern(r"(?<!\d)(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"), lambda g, t, p: date(int(g["y"]), int(g["m"]), int(g["d"]))),
    (pattern(r"(?<![\d/])(?<!of )(?P<m>1[0-2]|0?[1-9])/(?P<d>[12]\d|3[01]|0?[1-9])(?![\d/])"),
     lambda g, t, p: near(lambda year: date(year, int(g["m"]), int(g["d"])), t, p)),
)  # fmt: skip
