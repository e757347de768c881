"""Reads what the Memory API is given besides names: messages, times to live, limits, filters."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar, cast

from memos.errors import InputError
from memos.interface.doors.api import filters as conditions
from memos.interface.doors.api.values import Json, Who

T = TypeVar("T")
Filters = dict[str, Json]
Messages = str | list[dict[str, Json]] | dict[str, Json]


def turns_of(messages: Messages) -> list[dict[str, Json]]:
    """Messages as turns, as the reader takes them: {role, content}, and calls of tools. Raises InputError."""
    match messages:
        case str():
            turns = [{"content": messages}]
        case dict():
            turns = [messages]
        case _:
            turns = messages
    if not turns:
        raise InputError("there is no message; give a text, or a list of {role, content}")
    return [{"role": "user", **turn} if isinstance(turn, dict) else turn for turn in turns]


def texts_of(messages: Messages) -> list[dict[str, Json]]:
    """The same, each with a text: no calls of tools. Raises InputError."""
    turns = turns_of(messages)
    for turn in turns:
        if not (isinstance(turn, dict) and isinstance(turn["role"], str) and isinstance(turn.get("content"), str)):
            raise InputError(f"{str(turn)[:80]!r} is no message; give {{role, content}}, each a text")
    return turns


def either(one: T | None, other: T | None, name: str, other_name: str, what: str) -> T | None:
    """The value of an argument that has two names. Raises InputError where both are given and differ."""
    if None not in (one, other) and one != other:
        raise InputError(f"{name} and {other_name} are two names of {what}; give one of them")
    return other if one is None else one


def seconds_of(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InputError(f"ttl_s {seconds} is no time that ends; leave it out for a memory without end") from None


def checked_limit(limit: int) -> int:
    if limit < 1:
        raise InputError(f"limit {limit} gives nothing; give 1 or more")
    return limit


def filtered(filters: Filters | None, who: Who) -> tuple[Who, conditions.FilterGroup]:
    """(the scope, what else a memory must be) of the arguments of a call. Raises InputError."""
    scope, wanted = conditions.read(filters, cast(dict[str, str | None], who))
    return cast(Who, scope), wanted
