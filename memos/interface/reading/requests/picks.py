"""Reads which of several is meant: of the memories that a question has named, or of the versions of one.

Knows no memories, but their ids.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from memos.interface.reading.times import times
from memos.lazy import pattern

ID = pattern(r"\b[0-9a-zA-Z_-]{6,}\b")
_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1, "最后一": -1}
_PLACES |= {f"第{word}": place for place, word in enumerate("一二三四五")}
_PICK = pattern(
    rf"\W*(?:i mean(?:t)? |yes,? |please )*(?:the )?(?:(?P<nth>{'|'.join(_PLACES)})[个条]?|(?:no\.?|number|#)? ?(?P<n>[1-9])(?:st|nd|rd|th)?)(?: one)?(?:,? please)?[\s.!。！]*",
    re.IGNORECASE,
)
_ALL = pattern(
    r"\W*(?:yes,? |please |delete |forget )*(?:all|both|every one)(?: of (?:them|these|those))?(?:,? (?:please|pls))?\W*|\W*(?:全部|[全两]?[个条]?都)(?:要|删掉?|是)?\W*",
    re.IGNORECASE,
)
_YES = pattern(
    r"\W*(?:yes|yeah|yep|yup|ok(?:ay)?|sure|that(?:['’]s the)? one|it is|do it|是的?|对的?|好的?|嗯)(?:,? (?:please|pls|do))?\W*",
    re.IGNORECASE,
)


def read(answer: str, ids: Sequence[str]) -> tuple[str, ...]:
    """All of the ids, or one by its place or as it begins; none where it is no answer."""
    if _ALL.fullmatch(answer) or (len(ids) == 1 and _YES.fullmatch(answer)):
        return tuple(ids)
    for word in ID.findall(answer):
        if len(found := [id for id in ids if id.startswith(word)]) == 1:
            return tuple(found)
    if not (match := _PICK.fullmatch(answer)):
        return ()
    place = int(match["n"]) - 1 if match["n"] else _PLACES[match["nth"].lower()]
    return tuple(ids[place:][:1])


# -- versions ----------------------------------------------------------------------------------------------------

_DIGITS = {word: n for n, word in enumerate("零一二三四五六七八九")} | {"两": 2}
_NUMBERS = {
    word: n
    for words in (
        "zero one two three four five six seven eight nine ten eleven twelve",
        "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
    )
    for n, word in enumerate(words.split())
} | {"original": 1, "initial": 1}
_NUMBER = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_STATE = r"version|revision|release|edition|state|draft|wording|copy|take|form|incarnation|time|one"
_HAN = r"[\d零一二两三四五六七八九十]+"
_ONE_BACK = pattern(  # "roll it back one version"
    r"^(?:back )?(?:(?:one|a) (?:version|revision|step)(?: back)?|one)$|^(?:the )?(?:last|previous|latest) (?:one"
    r"|version|change|edit)$|[上前退回]一?个?[版次步稿]|上一个$|前的?那?一?[版稿]|^一[版步]$|撤销|撤消",
    re.IGNORECASE,
)
_EARLIER = pattern(r"\b(?:previous|last|before|prior|earlier|undo)\b|上|前|最近|刚", re.IGNORECASE)
_VERSION = pattern(
    rf"\b(?:version|ver|v|r|revision|rev|release|edition|state|draft|take|number|no|nr)\.? ?(?:number |no\.? ?"
    rf"|#)?(?P<n>\d+|{_NUMBER})\b|#(?P<h>\d+)|\b(?P<th>\d+)(?:st|nd|rd|th)\b(?= (?:{_STATE}))"
    rf"|\b(?P<word>{_NUMBER})(?= (?:{_STATE}))|第 ?(?P<zn>{_HAN}) ?(?:个)?[版稿次回]|第 ?(?P<zo>{_HAN}) ?个$|(?:版本?"
    rf"|修订)号?(?:为|是)? ?(?P<zv>{_HAN})|(?P<zb>{_HAN})号?[版稿]|^(?:to )?(?:the )?(?P<bare>{_NUMBER}|\d+)$"
    r"|(?P<first>最[初早]|最开始|一开始|原始|原版|初[版稿始]|原来的|首[个版次]|头一)",
    re.IGNORECASE,
)


def version(words: str, today: date) -> str | int:
    """The number of a version, a day (ISO), or "previous"; empty where none is named."""
    if _ONE_BACK.search(words):
        return "previous"
    if found := _VERSION.search(words):
        return number(next((value for name, value in found.groupdict().items() if value and name != "first"), "1"))
    if re.search(r"\b(?:original|very first|initial|at first|stood first)\b", words, re.IGNORECASE):
        return 1
    words = re.sub(r"^(?:back )?to ", "", words, flags=re.IGNORECASE)
    for text in (words, f"on {words}"):  # what has been lies before today
        if (when := times.find(text, today, past=True)) and (day := when.when.split("/")[0]) <= today.isoformat():
            return day
    return "previous" if _EARLIER.search(words) else ""


def number(word: str) -> int:
    """ "3", "three", "third" and "十三" as numbers."""
    if word.isdigit():
        return int(word)
    if word.lower() in _NUMBERS:
        return _NUMBERS[word.lower()]
    tens, ten, ones = word.partition("十")
    return _DIGITS.get(tens, 1) * 10 + _DIGITS.get(ones, 0) if ten else _DIGITS.get(word, 1)
