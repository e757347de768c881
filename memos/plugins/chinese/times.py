"""The words of times in Chinese."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta

from memos.interface.reading.times.days import (
    Days,
    Resolve,
    ago,
    iso,
    moved,
    near,
    near_month,
    nth,
    of_month,
    shifted,
    week,
    whole_month,
)
from memos.interface.reading.times.times import find

_DIGIT = {c: n for n, c in enumerate("零一二三四五六七八九十")} | {"两": 2, "〇": 0, "半": 0}
_ZN = r"(?P<n>\d+|[一二两三四五六七八九十]{1,3}|几)"
_ABOUT = re.compile(r"([一二两三四五六七八])([二三四五六七八九])")  # "两三天": from two to three days
_ZD = r"(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})"
_ZM = r"(?P<m>\d{1,2}|十[一二]|[一二三四五六七八九十元])"
_ZY = r"(?P<y>\d{4}|[一二三四五六七八九零〇]{4})"
_ZDAY = r"(?:周|星期|礼拜)(?P<day>[一二三四五六日天1-6])"

_FEASTS: dict[str, Callable[[int], date]] = {
    name: (lambda year, month=month, day=day: date(year, month, day))
    for name, month, day in (
        ("国庆节", 10, 1), ("国庆", 10, 1), ("圣诞节", 12, 25), ("圣诞", 12, 25), ("平安夜", 12, 24), ("元旦", 1, 1),
        ("劳动节", 5, 1), ("五一", 5, 1), ("儿童节", 6, 1), ("六一", 6, 1), ("建军节", 8, 1), ("教师节", 9, 10),
        ("情人节", 2, 14), ("植树节", 3, 12), ("妇女节", 3, 8), ("三八节", 3, 8), ("双十一", 11, 11),
        ("双十二", 12, 12), ("青年节", 5, 4), ("愚人节", 4, 1), ("万圣节", 10, 31), ("跨年夜", 12, 31),
    )
} | {
    "感恩节": lambda year: nth(year, 11, 3, 4), "母亲节": lambda year: nth(year, 5, 6, 2),
    "父亲节": lambda year: nth(year, 6, 6, 3),
    # by the sun, as the almanac reckons this century
    "清明": lambda year: date(year, 4, int((year - 2000) * 0.2422 + 4.81) - (year - 2000) // 4),
    "冬至": lambda year: date(year, 12, int((year - 2000) * 0.2422 + 21.94) - (year - 2000) // 4),
}  # fmt: skip
_HOLIDAYS = {"五一": 5, "劳动节": 5, "国庆": 7, "国庆节": 7}  # days off
_FEAST = rf"(?P<feast>{'|'.join(sorted(_FEASTS, key=len, reverse=True))})(?!帽|树|老人|礼物|卡|歌|装|袜|鹿)"


def last_day(days: Days) -> date:
    return days if isinstance(days, date) else days[1]


def number(word: str) -> int:
    """Raises ValueError for what is no one number, as "二三十"."""
    if word.isdigit():
        return int(word)
    if word == "元":  # of a year, the first month
        return 1
    if len(word) == 4:
        return int("".join(str(_DIGIT[c]) for c in word))
    tens, ten, ones = word.partition("十")
    if any(part and part not in _DIGIT for part in (tens, ones)):
        raise ValueError(f"{word!r} is no one number")
    return (_DIGIT[tens] if tens else 1) * 10 + (_DIGIT[ones] if ones else 0) if ten else _DIGIT[tens]


def _day(word: str) -> int:
    return 6 if word in "日天" else number(word) - 1


def _weekday(g: dict[str, str], today: date, past: bool) -> Days:
    which, day = g.get("which", ""), _day(g["day"])
    if which:
        return week(today, _step(which))[0] + timedelta(days=day)
    there = week(today)[0] + timedelta(days=day)
    if past and there > today:
        return there - timedelta(weeks=1)
    return there if past or there >= today else there + timedelta(weeks=1)


def _step(which: str) -> int:
    sign = -1 if which[0] in "上去前昨" else 1 if which[0] in "下明后" else 0
    return sign * (2 if which.startswith(("上上", "下下", "前", "后")) else 1)


def _dated(g: dict[str, str], today: date, past: bool) -> Days:
    month, day = number(g["m"]), number(g["d"])
    if "y" in g:
        return date(number(g["y"]), month, day)
    if "which" in g:
        return date(today.year + _step(g["which"]), month, day)
    return near(lambda year: date(year, month, day), today, past)


def _month(g: dict[str, str], today: date, past: bool) -> Days:
    month = number(g["m"])
    if "y" in g:
        return whole_month(number(g["y"]), month)
    if "which" in g:
        return whole_month(today.year + _step(g["which"]), month)
    return near_month(month, today, past)


def shift(g: dict[str, str], today: date, back: bool) -> Days | None:
    if g["n"] == "几":
        return None
    unit = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}[
        g["unit"]
    ]
    if about := _ABOUT.fullmatch(g["n"]):
        first, last = sorted(shifted(today, number(n), unit, back) for n in about.groups())
        return first, last
    return ago(today, number(g["n"]), unit) if back else shifted(today, number(g["n"]), unit, False)


def _relative(g: dict[str, str], today: date, past: bool) -> Days:
    step = _step(g["which"]) if g["which"][0] in "上下" else 0
    if g["unit"] == "月":
        there = moved(today.replace(day=1), step)
        return whole_month(there.year, there.month)
    return week(today, step)


def _weekend(g: dict[str, str], today: date, past: bool) -> Days:
    monday = week(today, _step(g["which"]) if g.get("which") else -1 if past and today.weekday() < 5 else 0)[0]
    return monday + timedelta(days=5), monday + timedelta(days=6)


def _end(g: dict[str, str], today: date, past: bool) -> Days:
    step = _step(g["which"]) if g.get("which") else 0
    if g["unit"] == "年":
        return date(today.year + step, 12, 31)
    there = moved(today.replace(day=1), step)
    return whole_month(there.year, there.month)[1]


def _quarter(g: dict[str, str], today: date, past: bool) -> Days:
    """ "一季度", "下个季度", "去年上半年"."""
    year, months = today.year + (_step(g["which"]) if g.get("which", "")[1:] == "年" else 0), 6 if "half" in g else 3
    if "half" in g:
        first = 1 if g["half"] == "上" else 7
    elif "q" in g:
        first = 3 * number(g["q"]) - 2
    else:
        start = moved(date(today.year, 3 * ((today.month - 1) // 3) + 1, 1), 3 * _step(g["which"]))
        year, first = start.year, start.month
    return date(year, first, 1), moved(date(year, first, 1), months) - timedelta(days=1)


def _feast(g: dict[str, str], today: date, past: bool) -> Days:
    name = g["feast"]
    day = _FEASTS[name](today.year + _step(g["which"])) if "which" in g else near(_FEASTS[name], today, past)
    return (day, day + timedelta(days=_HOLIDAYS[name] - 1)) if "off" in g and name in _HOLIDAYS else day


def _season(year: int, season: str) -> Days:
    start = date(year, {"春": 3, "夏": 6, "秋": 9, "冬": 12}[season], 1)
    return start, moved(start, 3) - timedelta(days=1)


FORMS: tuple[tuple[re.Pattern[str], Resolve], ...] = tuple(
    (re.compile(form), resolve)
    for form, resolve in (
        (rf"(?P<which>去年|今年|明年)?{_FEAST}(?![路街]|广场)(?P<off>那?[五七\d]天|长假|假期|黄金周|那几天|期间)?", _feast),
        (rf"{_ZY}年{_ZM}月{_ZD}[日号]?", _dated),
        (rf"(?P<which>去年|今年|明年|前年|后年){_ZM}月{_ZD}[日号]?", _dated),
        (rf"(?P<which>上上|上|下下|下|这|本)个?月 ?{_ZD} ?[日号]",
         lambda g, t, p: moved(t.replace(day=1), _step(g["which"])).replace(day=number(g["d"]))),
        (rf"(?<!\d){_ZM} ?月 ?{_ZD} ?(?:[日号]|(?=到期|之?前|截止))", _dated),
        (rf"{_ZY}年{_ZM}月(?:份)?", _month),
        (rf"(?P<which>去年|今年|明年|前年|后年){_ZM}月(?:份)?", _month),
        (rf"(?:(?P<which>去年|今年|明年))?(?<![\d个]){_ZM}月(?:份)?的?(?:底|末|最后一天)", lambda g, t, p: last_day(_month(g, t, p))),
        (r"(?P<which>上|下|这|本|去|今|明)?个?(?P<unit>月|年)的?(?:底|末|最后一天)", _end),
        (r"(?P<which>去年|今年|明年)?(?:(?P<half>[上下])半年|第?(?P<q>[一二三四1-4])季度)", _quarter),
        (r"(?P<which>上|下|这|本)个?一?季度", _quarter),
        (rf"(?<!\d)(?<![^整]个){_ZM}月(?:份)?(?![\d一二三四五六七八九十天])", _month),
        (r"大前天", lambda g, t, p: t - timedelta(days=3)),
        (r"前[天晚儿个]", lambda g, t, p: t - timedelta(days=2)),
        (r"昨[天日晚夜儿个]", lambda g, t, p: t - timedelta(days=1)),
        (r"大后天", lambda g, t, p: t + timedelta(days=3)),
        (r"后[天儿]", lambda g, t, p: t + timedelta(days=2)),
        (r"明[天日早晚儿个]", lambda g, t, p: t + timedelta(days=1)),
        (r"今[天日早晚儿个]", lambda g, t, p: t),
        (rf"{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)(?:以|之)?前", lambda g, t, p: shift(g, t, True)),
        (rf"(?:再?过)?{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)(?:以|之)?后", lambda g, t, p: shift(g, t, False)),
        (rf"再?过{_ZN}个?(?P<unit>天|日|周|星期|礼拜|月|年)", lambda g, t, p: shift(g, t, False)),
        (r"半个?年前", lambda g, t, p: moved(t, -6)),
        (r"半个?年(?:以|之)?后", lambda g, t, p: moved(t, 6)),
        (r"半个月前", lambda g, t, p: t - timedelta(days=15)),
        (r"(?P<which>上上|上|下下|下|这|本)个?(?:周|星期|礼拜)末|(?<!每)周末", _weekend),
        (rf"(?P<which>上上|上|下下|下|这|本)个?{_ZDAY}", _weekday),
        (rf"(?<!每)(?<!每个){_ZDAY}", _weekday),
        (r"(?P<which>上上|上|下下|下|这|本)一?个?(?P<unit>周|星期|礼拜|月)", _relative),
        (r"(?P<which>去|今|明|前|后)年(?P<season>[春夏秋冬])天?",
         lambda g, t, p: _season(t.year + _step(g["which"] + "年"), g["season"])),
        (r"(?P<which>去年|前年|今年|明年|后年)(?!都?(?:\d\d|[一二三四五六七八九]?十[一二三四五六七八九]?)(?:岁|了|，|$))",
         lambda g, t, p: (date(t.year + _step(g["which"]), 1, 1), date(t.year + _step(g["which"]), 12, 31))),
        (rf"{_ZY}年", lambda g, t, p: (date(number(g["y"]), 1, 1), date(number(g["y"]), 12, 31))),
        (rf"(?<![\d月路街巷弄道区栋楼第])(?<!大街)(?<!\d){_ZD}号(?![楼线门店机室房院码])",
         lambda g, t, p: of_month(number(g["d"]), None, t, p)),
    )
)  # fmt: skip
_ONLY_DAY = re.compile(r"(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})[日号]")
_UNTIL = re.compile(
    r"[，,]?(?:有效期?|截止|权限|期限|最多|只|就)?(?:到|至|直到|截止到|截至|在)(?P<time>[^，,。到至]{1,10}?)(?:为止|截止|结束|之前|以前|前|就行|吧|止)*(?=[，,。！!]|$)"
)
_FOR = re.compile(
    r"[，,]?(?:期限|有效期|为期|只|就|看|用)?(?:为|是)?(?P<n>\d+|[一二两三四五六七八九十]{1,2})个?(?P<unit>天|周|星期|月|年)(?:时间|内|之内|以内)?(?=[，,。！!]|$)"
)


def day_of_month(text: str) -> tuple[int, int] | None:
    """(the day, where its words end) of a text that opens with a day of no month."""
    with suppress(ValueError):
        if only := _ONLY_DAY.match(text):
            return number(only["d"]), only.end()
    return None


def until(text: str, today: date) -> str:
    """The last day until when something shall hold; "" where the text names none. Raises ValueError, OverflowError."""
    ends = _UNTIL.search(text)
    if ends and (found := find(ends["time"], today)):
        return found.when.split("/")[-1]
    lasts = _FOR.search(text)
    end = shift(lasts.groupdict(), today, False) if lasts else None
    return iso(last_day(end)) if end else ""
