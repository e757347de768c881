"""Computes days of the calendar as any language counts them: months, weeks, feasts, from the day of a turn."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta

Days = tuple[date, date] | date


def iso(days: Days) -> str:
    if isinstance(days, date):
        return days.isoformat()
    first, last = days
    return first.isoformat() if first == last else f"{first.isoformat()}/{last.isoformat()}"


def whole_month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])


def moved(day: date, months: int) -> date:
    """So many months on; the last day of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def week(day: date, weeks: int = 0) -> tuple[date, date]:
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=weeks)
    return monday, monday + timedelta(days=6)


def near(day: Callable[[int], date], today: date, past: bool) -> date:
    """The day of the nearest year that fits the tense. Raises ValueError for a day that no year has."""
    there = _had(day, today.year, past)
    if past and there > today:
        return _had(day, there.year - 1, past)
    if not past and (today - there).days > 180:
        return _had(day, there.year + 1, past)
    return there


def _had(day: Callable[[int], date], year: int, past: bool) -> date:
    """The day of the first year from this one on, or back, that has it: 29 February."""
    for there in range(year, year - 9, -1) if past else range(year, year + 9):
        with suppress(ValueError):
            return day(there)
    return day(year)


def near_month(month: int, today: date, past: bool) -> tuple[date, date]:
    year = today.year
    if past and month > today.month:
        year -= 1
    elif not past and month < today.month:
        year += 1
    return whole_month(year, month)


def of_month(day: int, step: int | None, today: date, past: bool) -> date:
    """A day of the month `step` months on; None: of this month, or the nearest that fits and has the day. Raises
    ValueError."""
    there = today.replace(day=1)
    if step is not None:
        return moved(there, step).replace(day=day)
    if (past and day > today.day) or (not past and day < today.day):
        there = moved(there, -1 if past else 1)
    if calendar.monthrange(there.year, there.month)[1] < day <= 31:  # the month beside it has 31 days
        there = moved(there, -1 if past else 1)
    return there.replace(day=day)


def shifted(today: date, n: int, unit: str, back: bool) -> date:
    sign = -1 if back else 1
    match unit:
        case "day" | "night":
            return today + timedelta(days=sign * n)
        case "week":
            return today + timedelta(weeks=sign * n)
        case "fortnight":
            return today + timedelta(weeks=2 * sign * n)
        case "month":
            return moved(today, sign * n)
        case "year":
            return moved(today, sign * 12 * n)
        case _:
            return today


def ago(today: date, n: int, unit: str) -> Days:
    """So long before; who speaks of years means no day of that year."""
    there = shifted(today, n, unit, True)
    return (there.replace(month=1, day=1), there.replace(month=12, day=31)) if unit == "year" else there


def _nth(year: int, month: int, weekday: int, n: int) -> date:
    """The n-th such weekday of a month."""
    first = date(year, month, 1)
    return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (n - 1))


_FEASTS: dict[str, Callable[[int], date]] = {
    name: (lambda year, month=month, day=day: date(year, month, day))
    for name, month, day in (
        ("christmas eve", 12, 24), ("christmas day", 12, 25), ("christmas", 12, 25), ("boxing day", 12, 26),
        ("xmas", 12, 25), ("new year's eve", 12, 31), ("new year's day", 1, 1), ("new year", 1, 1),
        ("halloween", 10, 31), ("valentine's day", 2, 14), ("valentine's", 2, 14),
        ("bonfire night", 11, 5), ("st patrick's day", 3, 17), ("may day", 5, 1), ("hogmanay", 12, 31),
        ("国庆节", 10, 1), ("国庆", 10, 1), ("圣诞节", 12, 25), ("圣诞", 12, 25), ("平安夜", 12, 24), ("元旦", 1, 1),
        ("劳动节", 5, 1), ("五一", 5, 1), ("儿童节", 6, 1), ("六一", 6, 1), ("建军节", 8, 1), ("教师节", 9, 10),
        ("情人节", 2, 14), ("植树节", 3, 12), ("妇女节", 3, 8), ("三八节", 3, 8), ("双十一", 11, 11),
        ("双十二", 12, 12), ("青年节", 5, 4), ("愚人节", 4, 1), ("万圣节", 10, 31), ("跨年夜", 12, 31),
    )
} | {
    "thanksgiving": lambda year: _nth(year, 11, 3, 4), "感恩节": lambda year: _nth(year, 11, 3, 4),
    "母亲节": lambda year: _nth(year, 5, 6, 2), "父亲节": lambda year: _nth(year, 6, 6, 3),
    # by the sun, as the almanac reckons this century
    "清明": lambda year: date(year, 4, int((year - 2000) * 0.2422 + 4.81) - (year - 2000) // 4),
    "冬至": lambda year: date(year, 12, int((year - 2000) * 0.2422 + 21.94) - (year - 2000) // 4),
}  # fmt: skip
_OF_FEAST = (  # what is named after one
    r"(?!帽|树|老人|礼物|卡|歌|装|袜|鹿|[ -](?:tree|card|jumper|sweater|light|hat|cookie|present|gift|decoration|song"
    r"|carol|pudding|cake|market|costume|bonus|ornament|movie|album)s?\b)"
)
FEAST = f"(?P<feast>{'|'.join(sorted(_FEASTS, key=len, reverse=True))})".replace("'", "['’]") + _OF_FEAST
_YEARS = {"去年": -1, "今年": 0, "明年": 1}
_HOLIDAYS = {"五一": 5, "劳动节": 5, "国庆": 7, "国庆节": 7}  # days off


def feast(g: dict[str, str], today: date, past: bool) -> Days:
    name = g["feast"].replace("’", "'")
    year = _YEARS.get(g.get("which", ""))
    day = near(_FEASTS[name], today, past) if year is None else _FEASTS[name](today.year + year)
    return (day, day + timedelta(days=_HOLIDAYS[name] - 1)) if "off" in g and name in _HOLIDAYS else day


def first_day(days: Days) -> date:
    return days if isinstance(days, date) else days[0]


Resolve = Callable[[dict[str, str], date, bool], "Days | None"]
