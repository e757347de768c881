"""Puts right what was told: the one place in it that a correction can stand for, or none; never guesses.

Knows no intents and no stores.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import pairwise

from memos.cube import Fact
from memos.interface.reading.phrasebook import language
from memos.interface.reading.requests import wordings
from memos.interface.reading.requests.references import names_in
from memos.interface.reading.times import times
from memos.lazy import pattern
from memos.skeleton import simplified

_ON_TIME = pattern(r"(?:(?:on|at|in|by) )?(?P<time>.+)", re.IGNORECASE | re.DOTALL)
_QUOTE = pattern(r"“([^”]+)”")
_OF_TIME = pattern(r"(?P<week>下+个?(?=周|星期|礼拜)|next (?=[a-z]+day))|下+个?月(?=\d)|\d+月(?=\d)", re.IGNORECASE)
_WEEK, _MONTH_DAY = pattern(r"周|星期|礼拜|[a-z]+day", re.IGNORECASE), pattern(r"\d+[号日]")
_NUMBER = pattern(
    r"[零一二两三四五六七八九十百千万]{2,}|(?:half |quarter (?:past|to) )?[£$€¥]?\d(?:[\d.,:/-]*\d)?(?: ?(?:o['’]?clock|[ap]m|k|kg|km|cm|%|块|元|点|岁|号|楼|层|室|斤)(?![a-z]))?",
    re.IGNORECASE,
)
_COUNT = pattern(  # "three slabs"
    rf"(?P<n>(?:[£$€¥]?\d[\d.,]*|an?|{'|'.join('one two three four five six seven eight nine ten eleven twelve'.split())})) (?P<of>[a-z]+)",
    re.IGNORECASE,
)
_AMOUNT = pattern(  # of money, or a day of the month; what it is of tells which can stand for another
    r"(?P<sign>[£$€¥]) ?\d(?:[\d,.]*\d)?|\d(?:[\d,.]*\d)?(?= ?(?P<unit>euro|eur|pound|quid|dollar|buck|chf|franc|块|元))|\bthe \d{1,2}(?:st|nd|rd|th)\b",
    re.IGNORECASE,
)
_NAME_ZH, _DONE_ZH = (
    4,
    pattern(r"(?<=[\u3400-\u9fff]{2})[借拿买送带领][走去来给]?的$"),
)  # what somebody did, behind a name
_JOINT = pattern(r"(?:[,;.!]|\b(?:and|but))\s+", re.IGNORECASE)
_STANDS = pattern(  # as a clause behind one that goes; "it" may be what goes
    r"(?i:i|we|my|our)\b|[A-Z]\w+ (?:is|was|has|had|will|can|said|says|wants|needs|likes|lives|works|\w+ed)\b"
)
_OF_IT = pattern(r"(?:it|its|it['’]s|that['’]?s|she|he|they)\b", re.IGNORECASE)
_DAY_NAME = pattern(r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?", re.IGNORECASE)


def put_right(text: str) -> tuple[str, str]:
    """(the words that a message says are wrong, if it names them; what is right in their place); "" for both where it
    says nothing of the kind."""
    found = wordings.PUTS_RIGHT.fullmatch(text)
    groups = {name.strip("z23"): words for name, words in found.groupdict().items() if words} if found else {}
    return groups.pop("old", "").rstrip("."), next(iter(groups.values()), "")


def change_named(text: str) -> dict[str, str]:
    """Of a message that names what is to be changed: "of" what, the "new" words in its place, "why", and what makes it
    an "order" by its form alone; of any other nothing."""
    found = wordings.CHANGES_TO.fullmatch(simplified(text))
    return {name.rstrip("23"): words for name, words in found.groupdict().items() if words} if found else {}


def in_place(names: Mapping[str, str], told: Sequence[str], today: date) -> tuple[str, str]:
    """(the only one of some memories in which a change has its place, changed; that one); "" twice where there is none,
    or several. names: as `change_named` tells."""
    found = [(what, line) for line in told if (what := corrected(line, "", names["new"], (), today))]
    what, line = found[0] if len(found) == 1 else ("", "")
    return f"{what}，{names['why']}" if what and "why" in names else what, line


def day_of(what: str, told: str, kept: str, today: date) -> str:
    """The day of what is told in the place of something. kept: the memory of that, with a day behind it."""
    now, was = (found.when if (found := times.find(one, today)) else "" for one in (what, told))
    return dated(told, kept) if now == was else now


def without(told: str, says: Callable[[str], bool]) -> str:
    """What was told without the clauses that say what is meant, nor those that lean on these; "" where they are all of
    it, or its first one. Cut is English alone."""
    ends = [0, *(joint.end() for joint in _JOINT.finditer(told)), len(told)]
    first, *more = (told[begin:end] for begin, end in pairwise(ends))
    left, goes = [first], False
    for clause in more:
        goes = says(clause) or (goes and not _STANDS.match(clause))
        left += [] if goes else [clause]
    is_left = len(left) <= len(more) and len(first.split()) > 2 and not says(first)
    whole = "".join(left).rstrip(" ,;.!").removesuffix(" and").removesuffix(" but").rstrip(" ,;")
    return whole if is_left else ""


def told_last(turns: Sequence[Mapping[str, object]]) -> str:
    """What the user has told or memos has quoted just before, a line for each memory; "" where neither is so."""
    said = [(str(turn.get("content", "")), turn.get("role") == "assistant") for turn in reversed(turns[-2:])]
    each = ("\n".join(reversed(_QUOTE.findall(text))) if by_model else text for text, by_model in said)
    told = next(filter(None, each), "")  # the first quote is the last line
    return "\n".join(times.WRITTEN.sub("", line).rstrip(" .。") for line in told.splitlines())


def right_in_place(
    text: str,
    turns: Sequence[Mapping[str, object]],
    is_unclear: bool,
    facts: Callable[[str], Sequence[Fact]],
    today: date,
) -> tuple[str, str]:
    """(what was told as a correction puts it right, what was told); the words of a correction that stands by itself, and
    "", where nothing like it was told; "" twice for any other message. is_unclear: what it corrects is not known else.
    facts: reads them in what was told."""
    (wrong, right), corrects = put_right(text), wordings.CORRECTS.match(text)
    if not (right or corrects):
        return "", ""
    lines_of = told_last(turns).splitlines()[::-1]
    found = [
        (corrected(line, wrong, right, facts(line), today) if right else again(line, text), line) for line in lines_of
    ]
    if found := [(what, line) for what, line in found if what]:  # for 11月20号 11月12号, before another time
        return next(((what, line) for what, line in found if _shape(what) == _shape(line)), found[0])
    if found := [(what, line) for line in lines_of if (what := _with_amount(line, text))]:
        return found[0]
    anew = wordings.PUTS_ANEW.fullmatch(text)
    of, new = (anew["of"] or anew["zof"], anew["new"] or anew["znew"]) if anew else ("", "")
    line = told_of(turns, wrong or of) if wrong or of else ""
    for words in filter(None, (right, new, *(number[0] for number in _NUMBER.finditer(new)))) if line else ():
        if what := corrected(line, wrong, words, (), today):
            return what, line
    return (anew["said"] or anew["zsaid"] if anew and is_unclear and corrects else ""), ""


def dated(told: str, said: str) -> str:
    """The days that stand behind what was told, as it was kept. said: that, or the turns with it."""
    return found[1] if told and (found := re.search(rf"{re.escape(told)}\W*\(([\d/-]+)\)", said)) else ""


def told_of(turns: Sequence[Mapping[str, object]], words: str) -> str:
    """The latest line that the user has told with these words in it; "" where there is none."""
    told = (str(turn.get("content", "")) for turn in reversed(turns) if turn.get("role") != "assistant")
    lines = (times.WRITTEN.sub("", line).rstrip(" .。") for text in told for line in reversed(text.splitlines()))
    asked = words.casefold()
    return next((one for one in lines if asked in simplified(one).casefold() and not one.endswith("?")), "")


def corrected(told: str, wrong: str, right: str, facts: Sequence[Fact], today: date) -> str:
    """What was told with `right` in the place of the words named as wrong, or of the one number or time in it that it
    can stand for, or of what its one fact is about; "" where there is none, or several."""
    written, told = told, simplified(told)
    old, new = times.find(told, today), times.find(right, today)
    if wrong:
        named = names_in(told) if wordings.PERSON.fullmatch(wrong) else [wrong]  # "not him, ingrid"
        wrong = named[0] if len(named) == 1 else wrong
        places = [found.span() for found in re.finditer(re.escape(wrong), told, re.IGNORECASE)]
        right = _DONE_ZH.sub("", right) if len(wrong) < _NAME_ZH else right  # 三楼的小孟借走的, for 老佟
        places = [_widened(told, *place, right) for place in places]
    elif new and new.span == (0, len(right)):
        places = [found.span("time") for found in _ON_TIME.finditer(told, *old.span)] if old else []
        kept = _OF_TIME.match(told[slice(*places[0])]) if places else None  # "下" of 下周三, for 周四
        if kept and (_WEEK if kept["week"] else _MONTH_DAY).match(right):
            right = kept[0] + right
    elif _DAY_NAME.fullmatch(right):
        places = [found.span() for found in _DAY_NAME.finditer(told)]
    elif number := _NUMBER.search(right) if _NUMBER.fullmatch(right) or language(right) == "zh" else None:
        right = number[0]
        places = [_bare_number(found, right) for found in _NUMBER.finditer(told)]
        alike = [(begin, end) for begin, end in places if end - begin == len(right)]
        places = alike if len(places) > 1 else places
    elif counted := _COUNT.match(right):
        right, of = counted["n"], counted["of"].casefold()
        places = [found.span("n") for found in _COUNT.finditer(told) if found["of"].casefold() == of]
    elif titled := re.search(rf"(?i)\b\S+ {re.escape(right.split()[-1])}\b", told if " " in right else ""):
        places = [titled.span()]  # mrs doyle, for ms doyle
    else:  # "the neighbours are called Patel" stands for nothing
        facts = () if re.search(r"(?i)\b(?:is|are|was|were|has|have|had)\b", right) else facts
        places = [found.span() for fact in facts for found in re.finditer(re.escape(fact.object), told)]
    return written[: places[0][0]] + right + written[places[0][1] :] if len(places) == 1 else ""


def _with_amount(told: str, text: str) -> str:
    """What was told with the one amount that a correction names in the place of the one of its kind, where the
    correction is about "it" or has a word of what was told; "" else."""
    opens = wordings.NOPE.match(text)
    rest = text[opens.end() :] if opens else text
    new, old = ([*_AMOUNT.finditer(words)] for words in (rest, told))
    if rest == text or len(new) != 1:
        return ""
    [amount], words = (
        new,
        {*re.findall(r"[a-z]{3,}", told.casefold())} - {"the", "and", "for", "was", "are", "has", "not"},
    )
    places = [one for one in old if (one["sign"], one["unit"]) == (amount["sign"], amount["unit"])]
    is_of_it = _OF_IT.match(rest) or words.intersection(re.findall(r"[a-z]{3,}", rest[: amount.start()].casefold()))
    if len(places) != 1 or not is_of_it:
        return ""
    return told[: places[0].start()] + amount[0] + told[places[0].end() :]


def _bare_number(found: re.Match[str], right: str) -> tuple[int, int]:
    """Where a number stands, without its unit where the other has none: 4260 of 4260块."""
    digits = re.match(r".*\d", found[0]) if right[-1].isdigit() else None
    return found.start(), found.start() + len(digits[0] if digits else found[0])


def _shape(words: str) -> str:
    return re.sub(r"\d", "0", words)


def _widened(told: str, begin: int, end: int, words: str) -> tuple[int, int]:
    """A place with what words to be put there would say again at its ends: "下" of 下周三, for 下周四."""
    sizes = range(len(words) - 1, 0, -1)
    before = next((n for n in sizes if told[:begin].endswith(words[:n])), 0)
    after = next((n for n in sizes if told[end:].startswith(words[-n:])), 0)
    return begin - before, end + after


def again(told: str, text: str) -> str:
    """What was told as a correction says it again, with other words at its end: "no, it comes out on the fifth"."""
    words = wordings.NOPE.sub("", text, count=1).rstrip(" .!").split()
    for n in range(len(words) - 1, 1, -1):
        before, same, after = told.partition(" ".join(words[:n]))
        left = after.split()
        if same and len(words) - n <= min(3, len(left)):
            return " ".join(filter(None, [before + same, *words[n:], *left[len(words) - n :]]))
    return ""
