"""What the calls of the Memory API are given from outside: a form of each, and what is wrong, in the words of every
door. Knows signatures; must not know how arguments come in."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from memos.interface.mem_api import Memory


def form_of(name: str, without: Collection[str] = ()) -> type[BaseModel]:
    """What a call takes, but for some arguments, as a form that knows no other names."""
    fields: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is inspect.Parameter.empty else p.default)
        for p in inspect.signature(getattr(Memory, name)).parameters.values()
        if p.name not in ("self", *without)
    }
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def explained(found: Sequence[Any], known: Sequence[str]) -> str:
    """The errors of a form, each with its place, the rule and what was given."""
    lines = []
    for item in found[:10]:
        place, told = place_of(item), item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(item["loc"][-1]), known, n=1, cutoff=0.5)
            lines.append(
                f"{place:.100}: unknown; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
            )
        elif not place:
            way_out = "" if item["type"] == "value_error" else "; send one JSON object as application/json"
            lines.append(f"the body: {told}{way_out}")
        else:
            given = "" if item["type"] == "missing" else f" (given: {item['input']!r:.80})"
            lines.append(f"{place:.100}: {told}{given}")
    return "; ".join(lines)


def place_of(item: Any) -> str:
    """Of one error: "messages.0.role"."""
    return ".".join(map(str, item["loc"]))
