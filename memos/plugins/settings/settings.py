"""Describes the config's keys for people and editors: type, default and description, and as a JSON Schema.

Knows the shape of the config; knows no values but the defaults.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from memos.plugins.experiment.config import RunConfig

EXPERIMENT = "experiment"  # its steps are alternatives, which the README and the configs show


@dataclass(frozen=True)
class Setting:
    """One key. default: as YAML would write it."""

    path: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class SettingGroup:
    """The keys of a section, and what it is for."""

    path: str
    about: str
    keys: tuple[Setting, ...]


def groups(section: type[BaseModel] = RunConfig, path: str = "") -> Iterator[SettingGroup]:
    """A section and those beneath it, depth first."""
    inner = {
        name: field.annotation
        for name, field in section.model_fields.items()
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel)
    }
    own = {name: field for name, field in section.model_fields.items() if name not in inner}
    about = inspect.cleandoc(section.__doc__) if section.__doc__ and section is not RunConfig else ""
    keys = tuple(
        Setting(f"{path}{name}", type_of(field.annotation), _default(field), field.description or "")
        for name, field in own.items()
    )
    yield SettingGroup(path.rstrip("."), about if "docs.pydantic" not in about else "", keys)
    for name, beneath in inner.items():
        if name != EXPERIMENT:
            yield from groups(beneath, f"{path}{name}.")


def schema() -> dict[str, object]:
    """JSON Schema (2020-12) of the YAML, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "memos",
        "description": "Settings and experiments of memos; an unknown key is refused.",
    } | {name: value for name, value in RunConfig.model_json_schema().items() if name not in ("title", "description")}


def schema_text() -> str:
    """The schema as a file has it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def type_of(annotation: object) -> str:
    """In the words of YAML: `text`, `number`, one of its values, `list of text`; `or unset` where None will do."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(str(value) for value in args)
    if origin in (tuple, list):
        return f"list of {type_of(args[0])}"
    if origin is dict:
        return f"{type_of(args[0])} to {type_of(args[1])}"
    if args:  # a union
        rest = [type_of(one) for one in args if one is not type(None)]
        return " or ".join([*rest, *(["unset"] if type(None) in args else [])])
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "a section"
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return ", ".join(str(value) for value in annotation)
    numbers: dict[object, str] = {int: "whole number", float: "number", bool: "true or false"}
    return numbers.get(annotation, "text")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "unset"
    if isinstance(value, BaseModel):
        return ""
    plain = json.loads(json.dumps(value, default=lambda one: str(one) if isinstance(one, PurePath) else repr(one)))
    return plain if isinstance(plain, str) and plain.isprintable() and plain else json.dumps(plain, ensure_ascii=False)
