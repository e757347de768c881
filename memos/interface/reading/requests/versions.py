"""Resolves words for a state of a memory to its version, the one before, or a day; knows no cubes."""

from __future__ import annotations

import re
from datetime import date

from memos.interface.reading.times import times
from memos.lazy import pattern

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


def state(words: str, today: date) -> str | int:
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
