"""Splits a text into sentences, tells its language and who reads that, and refuses what no text may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache

from memos.cube import Fact
from memos.errors import InputError
from memos.extensions import Registry
from memos.interface.reading.times.days import Resolve

_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')”]))(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St)\.)(?<!\bMrs\.)(?<!\b(?:e\.g|i\.e)\.)\s+"
    r"|(?<=[。！？])\s*|\s*\n\s*"
)
# Unicode blocks and what they tell.
_SCRIPTS = (
    ("ja", "\u3040-\u30ff"),
    ("ko", "\uac00-\ud7af\u1100-\u11ff"),
    ("zh", "\u3400-\u4dbf\u4e00-\u9fff"),
    ("ru", "\u0400-\u04ff"),
    ("ar", "\u0600-\u06ff\u0750-\u077f"),
    ("he", "\u0590-\u05ff"),
    ("hi", "\u0900-\u097f"),
    ("bn", "\u0980-\u09ff"),
    ("th", "\u0e00-\u0e7f"),
    ("el", "\u0370-\u03ff"),
    ("hy", "\u0530-\u058f"),
    ("ka", "\u10a0-\u10ff"),
)
_SCRIPT_OF = tuple((tag, re.compile(f"[{block}]")) for tag, block in _SCRIPTS)
_LATIN = re.compile(r"[A-Za-zÀ-ɏ]")
_LATIN_WORD = re.compile(r"[A-Za-zÀ-ɏ]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Language:
    """How a language beside English is read."""

    read: Callable[[str, str], tuple[list[Fact], list[str]]]  # (sentence, speaker) -> (facts, clauses not read)
    times: tuple[tuple[re.Pattern[str], Resolve], ...]
    day_of_month: Callable[[str], tuple[int, int] | None]  # a text that opens with "5th" -> (5, where it ends)
    until: Callable[[str, date], str]  # (text, today) -> the last day that it names; "" for none


LANGUAGES = Registry[Language]("memos.languages", "language")  # by the tags of _SCRIPTS


def languages(text: str) -> Iterator[Language]:
    """The installed languages in whose script something in a text is written; English is the reader's own."""
    tags = [] if text.isascii() else [tag for tag, script in _SCRIPT_OF if script.search(text)]
    yield from (_installed()[tag] for tag in tags if tag in _installed())


def language_of(sentence: str) -> Language | None:
    """The installed language that most of a sentence is in, whatever names stand in it."""
    if sentence.isascii():
        return None
    counts = {tag: len(script.findall(sentence)) for tag, script in _SCRIPT_OF}
    tag = max(counts, key=lambda tag: counts[tag])
    return _installed().get(tag) if counts[tag] * 2 > len(_LATIN_WORD.findall(sentence)) * 3 else None


@cache
def _installed() -> dict[str, Language]:
    return dict(LANGUAGES.usable())


def language(text: str) -> str:
    """A rough tag by script: "en" for Latin letters and for none; a foreign name in an English text does not count."""
    counts = {tag: len(script.findall(text)) for tag, script in _SCRIPT_OF}
    # One Han or kana character is about a word of Latin letters.
    if sum(counts.values()) * 3 <= len(_LATIN.findall(text)):
        return "en"
    if counts["ja"]:  # Japanese is written with Han characters too
        return "ja"
    return max(counts, key=lambda tag: counts[tag])


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without the space around them."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def require_text(text: str, where: str) -> None:
    """Raises InputError for half a character, which JSON can write and nothing can keep."""
    if half := _SURROGATE.search(text):
        raise InputError(f"{where}: character {half.start() + 1} is half of one ({half[0]!r}); remove it")
