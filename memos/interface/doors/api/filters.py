"""Reads mem0's filters once, and matches memories as plain values against them.

{"user_id": "ada", "category": {"in": ["food", "travel"]}, "OR": [{"page": {"gte": 3}}, {"NOT": [{"seen": True}]}]}

Every condition holds. Knows names and values; must not know where memories are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from memos.errors import InputError
from memos.interface.doors.api.values import SCOPE, Json, Who

_GROUPS: dict[str, Callable[[Iterator[bool]], bool]] = {"AND": all, "OR": any, "NOT": lambda held: not any(held)}
_Scope = dict[str, str | None]  # as `Who`
_DEEPEST = 20  # groups within each other


def _equal(there: Json, given: Json) -> bool:
    return bool(there == given or (isinstance(there, list) and given in there))


def _ordered(compare: Callable[[Json, Json], bool]) -> Callable[[Json, Json], bool]:
    """Of two numbers, or of two texts, as times are written."""

    def holds(there: Json, given: Json) -> bool:
        alike = any(isinstance(there, kind) and isinstance(given, kind) for kind in (str, (int, float)))
        return alike and compare(there, given)

    return holds


def _contains(there: Json, given: str) -> bool:
    return isinstance(there, (str, list)) and given in there


def _folded(value: Json) -> Json:
    if isinstance(value, list):
        return [_folded(one) for one in value]
    return value.casefold() if isinstance(value, str) else value


# what an operator is given: in words, as types
_ANYTHING = ("anything", (object,))
_ORDERED = ("a number or a text", (int, float, str))
_LIST = ("a list", (list, tuple))
_TEXT = ("a text", (str,))
# operator -> (what it is given, True if a value that is there holds against what is given)
_OPERATORS: dict[str, tuple[tuple[str, tuple[type, ...]], Callable[[Json, Json], bool]]] = {
    "eq": (_ANYTHING, _equal),
    "ne": (_ANYTHING, lambda there, given: not _equal(there, given)),
    "gt": (_ORDERED, _ordered(operator.gt)),
    "gte": (_ORDERED, _ordered(operator.ge)),
    "lt": (_ORDERED, _ordered(operator.lt)),
    "lte": (_ORDERED, _ordered(operator.le)),
    "in": (_LIST, lambda there, given: any(_equal(there, one) for one in given)),
    "nin": (_LIST, lambda there, given: not any(_equal(there, one) for one in given)),
    "contains": (_TEXT, _contains),
    "icontains": (_TEXT, lambda there, given: _contains(_folded(there), given.casefold())),
}


@dataclass(frozen=True)
class Compared:
    """A value of a memory, held against one that is given."""

    name: str
    operator: str
    given: Json


@dataclass(frozen=True)
class FilterGroup:
    """AND: all of them hold; OR: one does; NOT: none does."""

    how: str
    parts: tuple[Compared | FilterGroup, ...]


def read(filters: Mapping[str, Json] | None, who: Who) -> tuple[Who, FilterGroup]:
    """(whose memories, what else they must be). who: what the call says of whose. Raises InputError."""
    scope = cast(_Scope, dict(who))
    wanted = FilterGroup("AND", tuple(_conditions(filters or {}, "filters", scope, _DEEPEST)))
    return cast(Who, scope), wanted


def fits(memory: Mapping[str, Json], condition: Compared | FilterGroup) -> bool:
    """True if a memory is so. What its metadata calls by a name stands before what the memory does."""
    match condition:
        case FilterGroup(how=how, parts=parts):
            return _GROUPS[how](fits(memory, part) for part in parts)
        case Compared(name=name, operator=named, given=given):
            there = memory["metadata"].get(name, memory.get(name))
            return _OPERATORS[named][1](there, given)


def _conditions(given: Json, where: str, scope: _Scope | None, deep: int) -> Iterator[Compared | FilterGroup]:
    """scope: takes in whose memories are meant; None where they are meant by one condition of several."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where} is {given!r:.80}, and conditions are a mapping; give {{name: value}}")
    if not deep:
        raise InputError(f"{where[:80]} lies more than {_DEEPEST} groups deep; say it with fewer")
    for name, value in given.items():
        at = f"{where}.{name!s:.80}"
        if name in _GROUPS:
            if not isinstance(value, (list, tuple)):
                raise InputError(f"{at} is {value!r:.80}, and a group is a list; give [{{name: value}}, ...]")
            inner = scope if name == "AND" else None
            parts = (_conditions(one, f"{at}.{n}", inner, deep - 1) for n, one in enumerate(value))
            yield FilterGroup(name, tuple(FilterGroup("AND", tuple(part)) for part in parts))
        elif name in SCOPE:
            _narrow(scope, name, value, where)
        else:
            yield from _tests(str(name), value, at)


def _narrow(scope: _Scope | None, name: str, value: Json, where: str) -> None:
    if scope is None or not isinstance(value, str) or value in ("", "*"):
        raise InputError(
            f"{where}.{name} is {value!r:.80}, and whose memories are meant is one name, at the top or in AND; give "
            f'{{"{name}": "..."}} there, and call once for each'
        )
    if scope.get(name) not in (None, value):
        raise InputError(f"{name} is {scope[name]!r:.80} and in {where} {value!r:.80}; give one of them")
    scope[name] = value


def _tests(name: str, value: Json, where: str) -> Iterator[Compared]:
    if not isinstance(value, Mapping):
        yield Compared(name, "ne", None) if value == "*" else Compared(name, "eq", value)  # "*": anything is there
        return
    if not value or (unknown := [named for named in value if named not in _OPERATORS]):
        problem = f"{unknown[0]!r:.80} is no operator" if value else "there is no operator"
        raise InputError(f'{where}: {problem}; there are {", ".join(_OPERATORS)}, and {{"eq": ...}} for a mapping')
    for named, given in value.items():
        takes, types = _OPERATORS[named][0]
        if not isinstance(given, types) or (isinstance(given, bool) and object not in types):
            raise InputError(f"{where}.{named} is {given!r:.80}; give {takes}")
        yield Compared(name, named, given)
