"""Surrounds every call of the Memory API: checks its arguments, and reports what it cost.

The doors read here what a call takes and returns: from the signature of its method, as it stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from time import perf_counter
from typing import Any, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel
from typing_extensions import ParamSpec

from memos.cost import metered
from memos.errors import InputError
from memos.interface.doors.api.arguments import checked, form_of
from memos.interface.doors.api.values import Spent

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def costing() -> Iterator[Spent]:
    """What is done within it costs so much; known at its end."""
    cost: Spent = {"model_calls": 0, "tokens": 0, "seconds": 0.0}
    began = perf_counter()
    with metered() as spent:
        yield cost
    cost["model_calls"], cost["tokens"], cost["seconds"] = spent.model_calls, spent.tokens, perf_counter() - began


def api_call(method: Callable[P, R]) -> Callable[P, R]:
    """A call of the API: its arguments are checked, and its reply says what it cost."""

    @wraps(method)
    def costed(*values: P.args, **named: P.kwargs) -> R:
        memory, *rest = values
        with costing() as cost:
            reply = method(memory, **_given(method, rest, named))  # type: ignore[arg-type]
        return cast(R, cast("dict[str, Any]", reply) | {"cost": cost})

    costed.is_api_call = True  # type: ignore[attr-defined]
    return costed


def is_api_call(method: object) -> bool:
    """True for what `api_call` has made."""
    return getattr(method, "is_api_call", False)


@cache
def arguments(method: Callable[..., Any], without: Collection[str] = frozenset()) -> type[BaseModel]:
    """What a call takes, but for some arguments, as a form that knows no other names."""
    fields = {name: field for name, field in _parameters(method).items() if name not in without}
    return form_of(method.__name__, fields)


def result(method: Callable[..., Any]) -> Any:
    """The type of what a call returns."""
    return get_type_hints(method)["return"]


def _parameters(method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """(type, default) of each argument by name; those that `**who` stands for, which are None by default, last."""
    hints = get_type_hints(method)
    fields: dict[str, tuple[Any, Any]] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            [names] = get_args(hints[parameter.name])  # of Unpack
            fields |= {name: (kind, None) for name, kind in get_type_hints(names).items()}
        else:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
    return fields


def _given(method: Callable[..., Any], values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What a call is given by place and by name. Raises InputError."""
    name, by_place = method.__name__, inspect.Parameter.POSITIONAL_OR_KEYWORD
    places = [p.name for p in inspect.signature(method).parameters.values() if p.kind is by_place][1:]
    if len(values) > len(places):
        raise InputError(f"{name} takes {len(places)} values by their place, not {len(values)}; name the others")
    if twice := [place for place in places[: len(values)] if place in named]:
        raise InputError(f"{name} is given {twice[0]} by its place and by its name; give it once")
    return checked(arguments(method), dict(zip(places, values, strict=False)) | {**named})
