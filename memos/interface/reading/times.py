"""Words for times -> days, seen from the day of the turn. Knows calendars, English and Chinese; knows nothing else.

A day is "2026-03-06", a range of days "2026-03-02/2026-03-08"; weeks begin on Monday. A time that lies on both sides
is the nearest that fits: before the turn in the past tense, else after it.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

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
_DAY = rf"(?P<day>{'|'.join(_DAYS)}|mon|tues?|wed|thu(?:rs)?|fri|sat|sun)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
_N = rf"(?P<n>\d+|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_TH = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_Y = r"(?P<y>(?:19|20)\d\d)"
_WHICH = r"(?P<which>last|past|this|next|coming|this coming|this past|the following|the coming|previous|the previous|the last|the next)"
_PAST = re.compile(
    r"\b(?:was|were|did|had|went|got|\w+ed|came|saw|ran|said|told|met|bought|ate|drank|took|gave|made|left|lost|found"
    r"|began|started|sold|flew|wrote|read|broke|fell|spent|slept|won|froze|been|born|happened|done|sent|paid|became"
    r"|heard|felt|kept|held|drove|sang|swam|taught|thought|spoke|caught|built|knew|ago)\b"
)


_MOVED = re.compile(
    r"\b(?:moved|changed|shifted|postponed|put (?:back|off)|pushed|brought forward) to\b|[改变挪推提][到为成至]?了?"
)
_TO = re.compile(r"\s*(?:to|till|until|through|[-–—~到至])\s*(?:the )?")


@dataclass(frozen=True)
class Found:
    """A time in a text: its days, and where it stands."""

    when: str
    span: tuple[int, int]


def find(text: str, today: date) -> Found | None:
    """The first time that a text names. today: the day of its turn."""
    past = bool((_PAST if re.search("[a-zA-Z]", text) else _ZH_PAST).search(_MOVED.sub(" ", text.lower())))
    best: tuple[int, int, Found] | None = None
    for n, (regex, resolve) in enumerate(_FORMS):
        for match in regex.finditer(text):
            try:
                days = resolve({k: v.lower() for k, v in match.groupdict().items() if v}, today, past)
            except (ValueError, OverflowError):  # no calendar has that day
                continue
            if days and (best is None or (match.start(), n) < best[:2]) and not _inside(match, best):
                best = (match.start(), n, Found(_iso(days), match.span()))
    if best is None:
        return None
    first = best[2]
    if (to := _TO.match(text, first.span[1])) and "/" not in first.when:
        rest = text[to.end() :]
        last = find(f"on {rest}" if re.match("[a-zA-Z]", rest) else rest, today)
        if last and last.span[0] == 0 and last.when > first.when:
            return Found(f"{first.when}/{last.when.split('/')[-1]}", (first.span[0], to.end() + last.span[1]))
    return first


def _inside(match: re.Match[str], best: tuple[int, int, Found] | None) -> bool:
    return bool(best and best[2].span[0] < match.start())


Days = tuple[date, date] | date


def _iso(days: Days) -> str:
    if isinstance(days, date):
        return days.isoformat()
    first, last = days
    return first.isoformat() if first == last else f"{first.isoformat()}/{last.isoformat()}"


def _month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])


def _moved(day: date, months: int) -> date:
    """So many months on; the last day of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _week(day: date, weeks: int = 0) -> tuple[date, date]:
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=weeks)
    return monday, monday + timedelta(days=6)


def _step(which: str) -> int:
    return -1 if re.search("last|past|previous|上|去", which) else 1 if re.search("next|following|下|明", which) else 0


def _near(day: Callable[[int], date], today: date, past: bool) -> date:
    """The day of the nearest year that fits the tense."""
    there = day(today.year)
    if past and there > today:
        return day(today.year - 1)
    if not past and (today - there).days > 180:
        return day(today.year + 1)
    return there


def _near_month(month: int, today: date, past: bool) -> tuple[date, date]:
    year = today.year
    if past and month > today.month:
        year -= 1
    elif not past and month < today.month:
        year += 1
    return _month(year, month)


def _weekday(word: str) -> int:
    return next(n for n, day in enumerate(_DAYS) if day.startswith(word[:3]))


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word]


def _shifted(today: date, n: int, unit: str, back: bool) -> Days:
    sign = -1 if back else 1
    match unit:
        case "day" | "night":
            return today + timedelta(days=sign * n)
        case "week":
            return today + timedelta(weeks=sign * n)
        case "fortnight":
            return today + timedelta(weeks=2 * sign * n)
        case "month":
            return _moved(today, sign * n)
        case "year":
            return _moved(today, sign * 12 * n)
        case _:
            return today


def _of_week(g: dict[str, str], today: date, past: bool) -> Days:
    """ "last Friday" is the latest one; "next Friday" that of the coming days, of the next week if it is near."""
    day, which = _weekday(g["day"]), g.get("which", "")
    ahead = (day - today.weekday()) % 7
    if _step(which) < 0 or (not which and past):
        return today - timedelta(days=(today.weekday() - day) % 7 or 7)
    if _step(which) > 0:
        return _week(today, 1)[0] + timedelta(days=day)
    if which == "this" and not past:
        return _week(today)[0] + timedelta(days=day)
    return today + timedelta(days=ahead or (0 if which else 7))


def _relative(g: dict[str, str], today: date, past: bool) -> Days:
    step, unit = _step(g["which"]), g["unit"]
    match unit:
        case "week":
            return _week(today, step)
        case "weekend":
            monday = _week(today, step)[0]
            return monday + timedelta(days=5), monday + timedelta(days=6)
        case "month":
            there = _moved(today.replace(day=1), step)
            return _month(there.year, there.month)
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
        begun, ended = date(year, first, 1) <= today, _moved(date(year, first, 1), 3) <= today
        if step < 0 or (not g.get("which") and past):
            year -= 0 if ended else 1
        elif step > 0 or (not g.get("which") and ended):
            year += 1 if begun else 0
    start = date(year, first, 1)
    return start, _moved(start, 3) - timedelta(days=1)


def _dated(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = next(n for n, m in enumerate(_MONTHS, 1) if m.startswith(g["month"][:3])), int(g["d"])
    if "y" in g:
        return date(int(g["y"]), month, day)
    return _near(lambda year: date(year, month, day), today, past)


def _in_month(g: dict[str, str], today: date, past: bool) -> Days:
    month = next(n for n, m in enumerate(_MONTHS, 1) if m.startswith(g["month"][:3]))
    if "y" in g:
        return _month(int(g["y"]), month)
    if which := g.get("which"):
        year = today.year + (
            -1 if _step(which) < 0 and month >= today.month else 1 if _step(which) > 0 and month <= today.month else 0
        )
        return _month(year, month)
    return _near_month(month, today, past)


def _of_month(g: dict[str, str], today: date, past: bool) -> Days:
    day, there = int(g["d"]), today.replace(day=1)
    if "which" in g:
        return _moved(there, _step(g["which"])).replace(day=day)
    if (past and day > today.day) or (not past and day < today.day):
        there = _moved(there, -1 if past else 1)
    return there.replace(day=day)


def _end(g: dict[str, str], today: date, past: bool) -> Days:
    unit, step = g["unit"], _step(g.get("which", ""))
    if unit == "week":
        return _week(today, step)[1]
    if unit == "year":
        return date(today.year + step, 12, 31)
    if unit == "month":
        there = _moved(today.replace(day=1), step)
        return _month(there.year, there.month)[1]
    return _in_month({"month": unit} | ({"y": g["y"]} if "y" in g else {}), today, past)[1]  # type: ignore[index]


def _feast(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = {"christmas eve": (12, 24), "christmas": (12, 25), "new year's eve": (12, 31), "new year's day": (1, 1),
                  "new year": (1, 1), "halloween": (10, 31), "valentine's day": (2, 14), "boxing day": (12, 26)}[
        g["feast"].replace("’", "'")]  # fmt: skip
    return _near(lambda year: date(year, month, day), today, past)


def _plus(days: int) -> Callable[[dict[str, str], date, bool], Days]:
    return lambda g, today, past: today + timedelta(days=days)


_Resolve = Callable[[dict[str, str], date, bool], "Days | None"]


def _en(form: str) -> re.Pattern[str]:
    return re.compile(rf"\b{form}\b", re.IGNORECASE)


_ENGLISH: tuple[tuple[re.Pattern[str], _Resolve], ...] = (
    (_en(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"), lambda g, t, p: date(int(g["y"]), int(g["m"]), int(g["d"]))),
    (_en(r"(?:the )?day before yesterday"), _plus(-2)),
    (_en(r"(?:the )?day after tomorrow"), _plus(2)),
    (_en(r"(?:yesterday|last night)"), _plus(-1)),
    (_en(r"(?:tomorrow|tmrw|tmr|tomoz|2moro)"), _plus(1)),
    (_en(r"(?:today|tonight|this (?:morning|afternoon|evening))"), _plus(0)),
    (_en(rf"{_N} (?P<unit>day|night|week|fortnight|month|year)s? (?:ago|back|before|earlier)"),
     lambda g, t, p: _shifted(t, _number(g["n"]), g["unit"], True)),
    (_en(rf"(?:in|after) {_N} (?P<unit>day|week|fortnight|month|year)s?(?:['’]s?)?(?: time)?"),
     lambda g, t, p: None if p else _shifted(t, _number(g["n"]), g["unit"], False)),
    (_en(rf"{_N} (?P<unit>day|week|fortnight|month|year)s? (?:from (?:now|today)|hence)"),
     lambda g, t, p: _shifted(t, _number(g["n"]), g["unit"], False)),
    (_en(r"a week (?:from|on) tomorrow"), _plus(8)),
    (_en(rf"(?:the )?end of (?:{_WHICH} |the )?(?P<unit>week|month|year)"), _end),
    (_en(rf"(?:the )?end of (?P<unit>{'|'.join(_MONTHS)})(?: {_Y})?"), _end),
    (_en(rf"{_MONTH} {_TH},? {_Y}"), _dated),
    (_en(rf"{_TH} (?:of )?{_MONTH},? {_Y}"), _dated),
    (_en(rf"{_MONTH} (?:the )?{_TH}(?! ?(?:am|pm|years|people))"), _dated),
    (_en(rf"{_TH} (?:of )?{_MONTH}"), _dated),
    (_en(rf"(?:in )?(?:{_WHICH} )?{_MONTH}(?: of)? {_Y}"), _in_month),
    (_en(rf"{_WHICH} {_MONTH}"), _in_month),
    (_en(rf"(?:in|during|since|until|till|by|for|early|late|mid) (?:early |late |mid-?)?{_MONTH}"), _in_month),
    (_en(rf"{_DAY} (?P<which>last|next) week"), lambda g, t, p: _week(t, _step(g["which"]))[0] + timedelta(days=_weekday(g["day"]))),
    (_en(rf"(?P<which>last|next) week['’]?s? (?:on )?{_DAY}"), lambda g, t, p: _week(t, _step(g["which"]))[0] + timedelta(days=_weekday(g["day"]))),
    (_en(rf"a week (?:on|from) {_DAY}"), lambda g, t, p: _of_week(g, t + timedelta(weeks=1), False)),
    (_en(rf"{_DAY} week"), lambda g, t, p: _of_week(g, t + timedelta(weeks=1), False)),
    (_en(r"(?P<n>a|one|two) (?P<unit>week|fortnight)s? today"), lambda g, t, p: _shifted(t, _number(g["n"]), g["unit"], False)),
    (_en(rf"{_WHICH} {_DAY}"), _of_week),
    (_en(rf"{_DAY} (?:now|instead)"), _of_week),
    (_en(rf"(?:on|until|till|by|before|since|for|from|it['’]?s) {_DAY}(?!s)"), _of_week),
    (_en(rf"(?<!every )(?<!each ){_DAY}(?: (?:morning|afternoon|evening|night))?(?=[.!?,]|$)"), _of_week),
    (_en(rf"{_WHICH} (?P<unit>weekend|week|month|year)"), _relative),
    (_en(r"(?:on|over|at) the (?P<unit>weekend)"), lambda g, t, p: _relative({"which": "last" if p else "this", "unit": "weekend"}, t, p)),
    (_en(rf"(?:(?:in|during|over) )?(?:the )?(?:{_WHICH} )(?P<season>spring|summer|autumn|fall|winter)"), _season),
    (_en(rf"(?:in|during|over) (?:the )?(?P<season>spring|summer|autumn|fall|winter)(?: of)?(?: {_Y})?"), _season),
    (_en(rf"(?P<season>spring|summer|autumn|fall|winter)(?: of)? {_Y}"), _season),
    (_en(r"on the (?P<d>\d{1,2})(?:st|nd|rd|th)(?: of (?P<which>this|next|last) month|(?! of))"), _of_month),
    (_en(r"(?P<feast>christmas eve|christmas|new year['’]s eve|new year['’]s day|halloween|valentine['’]s day|boxing day)"), _feast),
    (_en(rf"(?:in|since|until|during|back in|of|from) {_Y}"), lambda g, t, p: (date(int(g["y"]), 1, 1), date(int(g["y"]), 12, 31))),
)  # fmt: skip

# Chinese
_ZH_PAST = re.compile("了|过|上|去年|昨|前天|曾|刚|以前|的时候")
_ZH_DIGIT = {c: n for n, c in enumerate("零一二三四五六七八九十")} | {"两": 2, "〇": 0, "半": 0}
_ZN = r"(?P<n>\d+|[一二两三四五六七八九十]{1,3}|几)"
_ZD = r"(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})"
_ZM = r"(?P<m>\d{1,2}|十[一二]|[一二三四五六七八九十])"
_ZY = r"(?P<y>\d{4}|[一二三四五六七八九零〇]{4})"
_ZDAY = r"(?:周|星期|礼拜)(?P<day>[一二三四五六日天1-6])"


def _zh_number(word: str) -> int:
    if word.isdigit():
        return int(word)
    if len(word) == 4:
        return int("".join(str(_ZH_DIGIT[c]) for c in word))
    tens, ten, ones = word.partition("十")
    if ten:
        return (_ZH_DIGIT[tens] if tens else 1) * 10 + (_ZH_DIGIT[ones] if ones else 0)
    return _ZH_DIGIT[word]


def _zh_day(word: str) -> int:
    return 6 if word in "日天" else _zh_number(word) - 1


def _zh_weekday(g: dict[str, str], today: date, past: bool) -> Days:
    which, day = g.get("which", ""), _zh_day(g["day"])
    if which:
        return _week(today, _zh_step(which))[0] + timedelta(days=day)
    there = _week(today)[0] + timedelta(days=day)
    if past and there > today:
        return there - timedelta(weeks=1)
    return there if past or there >= today else there + timedelta(weeks=1)


def _zh_step(which: str) -> int:
    sign = -1 if which[0] in "上去前昨" else 1 if which[0] in "下明后" else 0
    return sign * (2 if which.startswith(("上上", "下下", "前", "后")) else 1)


def _zh_dated(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = _zh_number(g["m"]), _zh_number(g["d"])
    if "y" in g:
        return date(_zh_number(g["y"]), month, day)
    if "which" in g:
        return date(today.year + _zh_step(g["which"]), month, day)
    return _near(lambda year: date(year, month, day), today, past)


def _zh_month(g: dict[str, str], today: date, past: bool) -> Days:
    month = _zh_number(g["m"])
    if "y" in g:
        return _month(_zh_number(g["y"]), month)
    if "which" in g:
        return _month(today.year + _zh_step(g["which"]), month)
    return _near_month(month, today, past)


def _zh_shift(g: dict[str, str], today: date, back: bool) -> Days | None:
    if g["n"] == "几":
        return None
    unit = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}[
        g["unit"]
    ]
    return _shifted(today, _zh_number(g["n"]), unit, back)


def _zh_feast(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = {"国庆节": (10, 1), "圣诞": (12, 25), "圣诞节": (12, 25), "元旦": (1, 1), "劳动节": (5, 1),
                  "儿童节": (6, 1), "教师节": (9, 10), "情人节": (2, 14), "平安夜": (12, 24)}[g["feast"]]  # fmt: skip
    return _near(lambda year: date(year, month, day), today, past)


def _zh_relative(g: dict[str, str], today: date, past: bool) -> Days:
    step = _zh_step(g["which"]) if g["which"][0] in "上下" else 0
    if g["unit"] == "月":
        there = _moved(today.replace(day=1), step)
        return _month(there.year, there.month)
    return _week(today, step)


def _zh_weekend(g: dict[str, str], today: date, past: bool) -> Days:
    monday = _week(today, _zh_step(g["which"]) if g.get("which") else 0)[0]
    return monday + timedelta(days=5), monday + timedelta(days=6)


def _zh_end(g: dict[str, str], today: date, past: bool) -> Days:
    step = _zh_step(g["which"]) if g.get("which") else 0
    if g["unit"] == "年":
        return date(today.year + step, 12, 31)
    there = _moved(today.replace(day=1), step)
    return _month(there.year, there.month)[1]


_CHINESE: tuple[tuple[re.Pattern[str], _Resolve], ...] = tuple(
    (re.compile(form), resolve)
    for form, resolve in (
        (rf"{_ZY}年{_ZM}月{_ZD}[日号]?", _zh_dated),
        (rf"(?P<which>去年|今年|明年|前年|后年){_ZM}月{_ZD}[日号]?", _zh_dated),
        (rf"(?P<which>上上|上|下下|下|这|本)个?月{_ZD}[日号]",
         lambda g, t, p: _moved(t.replace(day=1), _zh_step(g["which"])).replace(day=_zh_number(g["d"]))),
        (rf"(?<!\d){_ZM}月{_ZD}[日号]", _zh_dated),
        (rf"{_ZY}年{_ZM}月(?:份)?", _zh_month),
        (rf"(?P<which>去年|今年|明年|前年|后年){_ZM}月(?:份)?", _zh_month),
        (r"(?P<which>上|下|这|本)?个?(?P<unit>月|年)(?:底|末)", _zh_end),
        (rf"(?<![\d个]){_ZM}月(?:份)?(?![\d一二三四五六七八九十])", _zh_month),
        (r"大前天", lambda g, t, p: t - timedelta(days=3)),
        (r"前天|前晚|前儿", lambda g, t, p: t - timedelta(days=2)),
        (r"昨天|昨日|昨晚|昨夜|昨儿", lambda g, t, p: t - timedelta(days=1)),
        (r"大后天", lambda g, t, p: t + timedelta(days=3)),
        (r"后天|后儿", lambda g, t, p: t + timedelta(days=2)),
        (r"明天|明日|明早|明晚|明儿", lambda g, t, p: t + timedelta(days=1)),
        (r"今天|今日|今早|今晚|今儿", lambda g, t, p: t),
        (rf"{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)(?:以|之)?前", lambda g, t, p: _zh_shift(g, t, True)),
        (rf"(?:再?过)?{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)(?:以|之)?后", lambda g, t, p: _zh_shift(g, t, False)),
        (rf"再?过{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)", lambda g, t, p: _zh_shift(g, t, False)),
        (r"半个?年前", lambda g, t, p: _moved(t, -6)),
        (r"半个?年(?:以|之)?后", lambda g, t, p: _moved(t, 6)),
        (r"半个月前", lambda g, t, p: t - timedelta(days=15)),
        (r"(?P<which>上上|上|下下|下|这|本)个?(?:周|星期|礼拜)末|(?<!每)周末", _zh_weekend),
        (rf"(?P<which>上上|上|下下|下|这|本)个?{_ZDAY}", _zh_weekday),
        (rf"(?<!每)(?<!每个){_ZDAY}", _zh_weekday),
        (r"(?P<which>上上|上|下下|下|这|本)个?(?P<unit>周|星期|礼拜|月)", _zh_relative),
        (r"(?P<which>去|今|明|前|后)年(?P<season>[春夏秋冬])天?",
         lambda g, t, p: _zh_season(t.year + _zh_step(g["which"] + "年"), g["season"])),
        (r"(?P<which>去年|前年|今年|明年|后年)",
         lambda g, t, p: (date(t.year + _zh_step(g["which"]), 1, 1), date(t.year + _zh_step(g["which"]), 12, 31))),
        (rf"{_ZY}年", lambda g, t, p: (date(_zh_number(g["y"]), 1, 1), date(_zh_number(g["y"]), 12, 31))),
        (rf"(?<![\d月路街巷弄道区栋楼第])(?<!大街)(?<!\d){_ZD}号(?![楼线门店机室房院码])",
         lambda g, t, p: _of_month({"d": str(_zh_number(g["d"]))}, t, p)),
        (r"(?<!\d)(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)", lambda g, t, p: date(int(g["y"]), int(g["m"]), int(g["d"]))),
        (r"(?P<feast>国庆节|圣诞节?|元旦|劳动节|儿童节|教师节|情人节|平安夜)", _zh_feast),
    )
)  # fmt: skip


def _zh_season(year: int, season: str) -> Days:
    start = date(year, {"春": 3, "夏": 6, "秋": 9, "冬": 12}[season], 1)
    return start, _moved(start, 3) - timedelta(days=1)


_FORMS = (*_ENGLISH, *_CHINESE)

_UNTIL = re.compile(
    r",?\s*\b(?:(?:but |and )?(?:only )?(?:until|till|til|through|up to|up until|valid until|no longer than|not longer than|expiring"
    r"(?: on)?|ending(?: on)?|by)|(?P<for>for(?: the next| only| just)?))\s+(?P<time>[^,;.]+?)(?: only)?(?=$|[,;.!?]| then\b| and\b)",
    re.IGNORECASE,
)
_FOR = re.compile(rf"(?:the next )?{_N}?\s*(?P<unit>day|week|fortnight|month|year)s?", re.IGNORECASE)
_ZH_UNTIL = re.compile(
    r"[，,]?(?:有效期?|截止|权限|期限|最多|只|就)?(?:到|至|直到|截止到|截至|在)(?P<time>[^，,。到至]{1,10}?)(?:为止|截止|结束|之前|以前|前|就行|吧|止)*(?=[，,。！!]|$)"
)
_ZH_FOR = re.compile(
    r"[，,]?(?:期限|有效期|为期|只|就|看|用)?(?:为|是)?(?P<n>\d+|[一二两三四五六七八九十]{1,2})个?(?P<unit>天|周|星期|月|年)(?:时间|内|之内|以内)?(?=[，,。！!]|$)"
)


def until(text: str, today: date) -> tuple[str, str]:
    """(the last day until when something shall hold, the text without it); "" where it names none."""
    for match in _UNTIL.finditer(text):
        rest = (text[: match.start()] + text[match.end() :]).strip()
        if match["for"]:
            if (spell := _FOR.fullmatch(match["time"].strip())) and (spell["n"] or "next" in match[0]):
                days = _shifted(today, _number((spell["n"] or "a").lower()), spell["unit"].lower(), False)
                return _iso(days), rest
            continue
        if found := find(f"until {match['time']}", today):
            return found.when.split("/")[-1], rest
    ends = _ZH_UNTIL.search(text)
    if ends and (found := find(ends["time"], today)):
        return found.when.split("/")[-1], (text[: ends.start()] + text[ends.end() :]).strip()
    if lasts := _ZH_FOR.search(text):
        end = _zh_shift(lasts.groupdict(), today, False)
        return (_iso(end) if end else ""), (text[: lasts.start()] + text[lasts.end() :]).strip()
    return "", text
