"""Computes days of the calendar as any language counts them: months and weeks, from the day of a turn."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta

Days = tuple[date, date] | date
_DAYS_OF, _MONTHS_OF = {"day": 1, "night": 1, "week": 7, "fortnight": 14}, {"month": 1, "year": 12}


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
    if not past and (today - there).days > 90:
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
    n = -n if back else n
    return moved(today, n * _MONTHS_OF.get(unit, 0)) + timedelta(days=n * _DAYS_OF.get(unit, 0))


def ago(today: date, n: int, unit: str) -> Days:
    """So long before; who speaks of years means no day of that year."""
    there = shifted(today, n, unit, True)
    return (there.replace(month=1, day=1), there.replace(month=12, day=31)) if unit == "year" else there


def nth(year: int, month: int, weekday: int, n: int) -> date:
    """The n-th such weekday of a month."""
    first = date(year, month, 1)
    return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (n - 1))


def first_day(days: Days) -> date:
    return days if isinstance(days, date) else days[0]


Resolve = Callable[[dict[str, str], date, bool], "Days | None"]
