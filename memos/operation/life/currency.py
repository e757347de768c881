"""Decides which facts a later statement replaces and which it stands beside; knows no language and no stores.

Only the same relation of the same subject is replaced, and only by what was said later. In doubt both stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from memos.cube import Fact, MemCube, Text

_WORD = re.compile(r"\w+")
_SMALL = frozenset("a an the my our his her their some of".split())


HOLDING_MODES = ("is", "also", "now")  # modes of what holds once it has been said


def replaces(later: Fact, earlier: Fact) -> bool:
    """True if the earlier one no longer holds once the later one is said."""
    if later.subject.casefold() != earlier.subject.casefold() or later.relation not in ("", earlier.relation):
        return False
    match later.mode, earlier.mode:
        case "ended", ("is" | "also" | "now"):
            return not later.object or _covers(later.object, earlier.object)
        case (("is" | "also" | "now"), "ended"):  # "I don't eat fish", "I eat fish again"
            return bool(earlier.object) and _key(earlier.object) == _key(later.object)
        case "now", ("is" | "now"):
            return not _alike(later.object, earlier.object)
        case "is", ("is" | "now"):
            return later.sole and earlier.sole and not _alike(later.object, earlier.object)
        case _:
            return False


def contradicts(one: Fact, other: Fact) -> bool:
    """True if both are said to hold and only one can: of one subject, what has one value at a time."""
    about = one.subject.casefold() == other.subject.casefold() and one.relation == other.relation
    both = one.sole and other.sole and "also" not in (one.mode, other.mode) and one.holds and other.holds
    return about and both and not _alike(one.object, other.object)


def modes_against(fact: Fact) -> tuple[str, ...]:
    """The modes of other facts that may replace this one, or be replaced by it."""
    match fact.mode:
        case "ended":
            return HOLDING_MODES
        case "now":
            return "is", "now", "ended"
        case "is":
            return ("is", "now", "ended") if fact.sole else ("now", "ended")
        case "also":
            return ("ended",)
        case _:
            return ()


def replaced(later: Iterable[Fact], earlier: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts of an earlier statement that no longer hold once the later one is said."""
    new_facts = tuple(later)
    return tuple(old for old in earlier if any(replaces(new, old) for new in new_facts))


def is_outdated(text: Text, gone: Collection[Fact]) -> bool:
    """True if a statement says nothing but facts that no longer hold."""
    return bool(text.facts) and not text.more and all(fact in gone for fact in text.facts)


def facts_out_of_force(cube: MemCube, others: Iterable[MemCube]) -> dict[Fact, str]:
    """Which facts of a statement no longer hold, each with the id of the first later statement that replaced it."""
    found: dict[Fact, str] = {}
    for other in sorted(others, key=lambda c: c.order):
        if other.order > cube.order and other.id != cube.id:
            for fact in replaced(stated(other), stated(cube)):
                found.setdefault(fact, other.id)
    return found


def stated(cube: MemCube) -> tuple[Fact, ...]:
    """The facts of a statement; none for what is no statement."""
    return cube.payload.facts if isinstance(cube.payload, Text) else ()


def _key(words: str) -> tuple[str, ...]:
    return tuple(word for word in _WORD.findall(words.casefold()) if word not in _SMALL)


def _alike(a: str, b: str) -> bool:
    """True if one object may be the other, said more closely: "nurse" and "night nurse"."""
    one, other = _key(a), _key(b)
    if len(one) == len(other) == 1 and not (one[0].isascii() or other[0].isascii()):
        return one[0] in other[0] or other[0] in one[0]  # "北京朝阳区" and "北京"
    return set(one) <= set(other) or set(other) <= set(one)


def _covers(ended: str, holding: str) -> bool:
    """True if what has ended is what was held: "cat" ends "grey cat", and "tennis" ends "tennis club"'s sport not."""
    one, other = _key(ended), _key(holding)
    if not one or not other:
        return False
    if len(one) == len(other) == 1 and not (one[0].isascii() and other[0].isascii()):
        return one[0].endswith(other[0]) or other[0].endswith(one[0])  # "灰猫" is a "猫"
    short, long = sorted((one, other), key=len)
    return long[-len(short) :] == short or _singular(long) == _singular(short)


def _singular(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(re.sub(r"(?<=\w{2})s$", "", word) for word in words)
