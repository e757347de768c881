"""Checks the arguments of the Memory API's calls, with one wording of what is wrong for every door.

Knows signatures; must not know how arguments come in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, islice, takewhile

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from memos.errors import InputError, meant
from memos.interface.doors.api.values import Json

_OF_MEM0 = {  # what mem0's calls take and ours have no use for
    "memory_type": "what is told decides the kind of a memory",
    "prompt": "rules read what is told",
    "rerank": "retrieval.reranker in the config decides for all searches",
    "timestamp": 'each message may have its "time"',
}
_TYPE = re.compile(r"str|int|float|bool|\w+\[.*\]")  # in the place of an error: one of several that would do
_SHOWN = 10  # errors of one call


def form_of(name: str, fields: Mapping[str, tuple[Json, Json]]) -> type[BaseModel]:
    """What a call takes, by (type, default) of each argument, as a form that knows no other names."""
    known: dict[str, Json] = dict(fields)
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **known)


def checked(form: type[BaseModel], given: Mapping[str, Json]) -> dict[str, Json]:
    """What a call is given, as its form has it. Raises InputError."""
    try:
        read = form.model_validate(given)
    except ValidationError as error:
        raise InputError(explained(error.errors(), list(form.model_fields))) from None
    return {field: getattr(read, field) for field in read.model_fields_set}


def explained(found: Sequence[Json], known: Sequence[str]) -> str:
    """The errors of a form, each with its place, the rule and what was given; of what may be one thing or another, all
    rules."""
    lines = []
    for place, of in islice(groupby(found, place_of), _SHOWN):
        item, *others = of
        rule = ", or ".join(dict.fromkeys(one["msg"].removeprefix("Value error, ") for one in (item, *others)))
        if item["type"] == "extra_forbidden" and place in _OF_MEM0:
            lines.append(f"{place} is mem0's, and not known here: {_OF_MEM0[place]}")
        elif item["type"] == "extra_forbidden":
            hint = meant(str(item["loc"][-1]), known, f"known: {', '.join(known)}")
            lines.append(f"{place:.100}: unknown; {hint}")
        elif not place:
            way_out = "" if item["type"] == "value_error" else "; send one JSON object as application/json"
            lines.append(f"the body: {rule}{way_out}")
        else:
            given = "" if item["type"] == "missing" else f" (given: {item['input']!r:.80})"
            lines.append(f"{place:.100}: {rule}{given}")
    return "; ".join(lines)


def place_of(item: Json) -> str:
    """Of one error: "messages.0.role"; of a value that may be of several types, its own."""
    return ".".join(takewhile(lambda part: not _TYPE.fullmatch(part), map(str, item["loc"])))
