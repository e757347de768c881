"""The base class of every section of the settings, and the wording of a mistake in one."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from memos.errors import ConfigError, meant


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def explain(error: ValidationError, prefix: str, root: type[BaseModel]) -> ConfigError:
    """Every mistake of a section, each by its path, with the rule and the nearest key. prefix: path of the section."""
    lines = []
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _keys(root, item["loc"][:-1])
            hint = meant(str(item["loc"][-1]), known, f"known keys: {', '.join(known)}")
            lines.append(f"{prefix}{path}: unknown key; {hint}")
        else:
            given = "" if item["type"] == "missing" else f" (given: {item['input']!r:.80})"
            lines.append(f"{prefix}{path}: {item['msg'].removeprefix('Value error, ')}{given}")
    return ConfigError("; ".join(lines))


def _keys(root: type[BaseModel], loc: Collection[int | str]) -> list[str]:
    """The keys of the section at `loc`."""
    section: object = root
    for part in loc:
        fields = getattr(section, "model_fields", {})
        if part in fields:
            section = fields[str(part)].annotation
        elif get_origin(section) is dict:  # a section for each key
            section = get_args(section)[1]
    return sorted(getattr(section, "model_fields", {}))
