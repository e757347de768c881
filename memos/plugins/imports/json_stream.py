"""Reads JSON of any size one record at a time; must not know what the records mean.

What is read at once is bounded: a record that is longer, or nested deeper, than the bounds is named and passed over. So
is one that is no JSON, as long as its brackets close; the records after it are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 1 << 26  # characters of one record
DEEPEST = 100  # brackets within each other
_LONGEST_KEY = 1 << 16
_MARK = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_END_OF_SCALAR = re.compile(r"[,\]}\s]")
_INK = re.compile(r"\S")
_LINE_END = re.compile(r"\n")


@dataclass(frozen=True)
class Node:
    """A value, and the keys and numbers that lead to it from the top."""

    path: tuple[str | int, ...]
    value: Any


@dataclass(frozen=True)
class Fault:
    """Why there is no value at a place."""

    path: tuple[str | int, ...]
    why: str


class _Broken(Exception):
    """It cannot be known where a value ends."""


def documents(pieces: Iterator[str]) -> Iterator[Node | Fault]:
    """The elements of a list; of an object, its members, and of a member that holds others, these."""
    text = _JsonText(pieces)
    try:
        first = text.ahead()
        if first in ("[", "{"):
            yield from _members(text, (), deeper=first == "{")
        elif first:
            yield _parsed((), text.value(LONGEST))
        if text.ahead():
            yield Fault((), "something stands behind the end of the JSON")
    except _Broken as error:
        yield Fault((), f"from here on it is not JSON: {error}")


def lines(pieces: Iterator[str]) -> Iterator[Node | Fault]:
    """A value for each line; empty lines are none. The path is the number of the line, from 1."""
    text, n = _JsonText(pieces), 0
    while not text.at_end():
        n += 1
        line = text.upto(_LINE_END, LONGEST)
        text.skip(1)
        if line is None or line.strip("\ufeff \t\r\n"):
            yield _parsed((n,), None if line is None else _Raw(line.strip("\ufeff \t\r"), depth(line)))


def _members(text: _JsonText, path: tuple[str | int, ...], deeper: bool) -> Iterator[Node | Fault]:
    """Of the list or object that begins here. deeper: lists and objects in it are gone into, one level."""
    named = text.take() == "{"
    n = 0
    while (ahead := text.ahead()) not in ("]", "}"):
        if not ahead:
            raise _Broken("it ends within a list or an object")
        if ahead == ",":
            text.take()
            continue
        at: tuple[str | int, ...] = (*path, n)
        n += 1
        if named:
            key = text.value(_LONGEST_KEY)
            name = _parsed(path, key)
            if not isinstance(name, Node) or not isinstance(name.value, str) or text.ahead() != ":":
                raise _Broken(f"a name and a colon are missing after member {n}")
            text.take()
            at = (*path, name.value)
            ahead = text.ahead()
        if deeper and ahead in ("[", "{"):
            yield from _members(text, at, deeper=False)
        else:
            yield _parsed(at, text.value(LONGEST))
    text.take()


@dataclass(frozen=True)
class _Raw:
    text: str
    depth: int


def _parsed(path: tuple[str | int, ...], raw: _Raw | None) -> Node | Fault:
    if raw is None:
        return Fault(path, f"it is longer than {LONGEST:,} characters")
    if raw.depth > DEEPEST:
        return Fault(path, f"it is nested deeper than {DEEPEST} levels")
    try:
        return Node(path, json.loads(raw.text, strict=False))
    except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError
        return Fault(path, "it is not JSON" if isinstance(error, json.JSONDecodeError) else "it is no usable JSON")


def depth(text: str) -> int:
    """How many brackets stand within each other, at most, in the value that begins a text; 0 where it does not end."""
    try:
        raw = _JsonText(iter([text])).value(len(text))
    except _Broken:
        return 0
    return raw.depth if raw else 0


class _JsonText:
    """Text that comes in pieces, of which only the part that is being read is kept."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._text, self._at = pieces, "", 0

    def _more(self) -> bool:
        """Drop what was read, and read a piece; False at the end."""
        piece = next(self._pieces, "")
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def at_end(self) -> bool:
        return self._at >= len(self._text) and not self._more()

    def ahead(self) -> str:
        """The next character that is no space, or "" at the end; what is before it is passed over."""
        while not (found := _INK.search(self._text, self._at)):
            self._at = len(self._text)
            if not self._more():
                return ""
        self._at = found.start()
        if found[0] == "\ufeff":  # a byte order mark in the middle, as of files put together
            self._at += 1
            return self.ahead()
        return found[0]

    def take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def skip(self, count: int) -> None:
        self._at = min(self._at + count, len(self._text))

    def upto(self, end: re.Pattern[str], most: int) -> str | None:
        """What stands before `end`, which is not taken; None where that is longer than `most`."""
        searched, fits = self._at, True
        while not (found := end.search(self._text, searched)):
            if len(self._text) - self._at > most:
                fits, self._at = False, len(self._text)
            searched = len(self._text) - self._at
            if not self._more():
                searched = len(self._text)
                break
        stop = found.start() if found else searched
        out = self._text[self._at : stop]
        self._at = stop
        return out if fits and len(out) <= most else None

    def value(self, most: int) -> _Raw | None:
        """The value that begins at the next character, which is no space; None where it is longer than `most`.

        Raises _Broken where it does not end.
        """
        first = self.ahead()
        if first not in ('"', "{", "["):
            scalar = self.upto(_END_OF_SCALAR, most)
            if scalar == "":
                raise _Broken(f"there is {first!r} where a value should be" if first else "it ends before a value")
            return None if scalar is None else _Raw(scalar, 0)
        fits, depth, deepest, quoted, at = True, 0, 0, False, self._at
        while True:
            found = (_IN_STRING if quoted else _MARK).search(self._text, at)
            if not found:
                if len(self._text) - self._at > most:
                    fits, self._at = False, len(self._text)
                at = max(at, len(self._text)) - self._at  # beyond the end where a backslash was the last
                if not self._more():
                    raise _Broken("it ends within a value")
                continue
            at = found.end()
            match found[0]:
                case '"':
                    quoted = not quoted
                case "\\":
                    at += 1
                case "{" | "[":
                    depth += 1
                    deepest = max(deepest, depth)
                case _:
                    depth -= 1
            if depth <= 0 and not quoted and found[0] != "\\":
                out, self._at = self._text[self._at : at], at
                return _Raw(out, deepest) if fits and len(out) <= most else None
