"""What the JSON formats share: turning a node of a file into a record, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memos.plugins.imports.entry import Unmapped
from memos.plugins.imports.json_stream import Fault, Node
from memos.plugins.imports.source import ImportSource

OWN_WORDS = "the model's own words are no memories"


def place(path: tuple[str | int, ...], within: str = "") -> str:
    """ "results, 3" for the fourth of the results."""
    steps = [str(step)[:80].encode("utf-8", "replace").decode() for step in path]
    return ", ".join([*([within] if within else []), *steps]) or "the file"


def nodes(found: Iterable[Node | Fault], within: str = "") -> Iterator[tuple[tuple[str | int, ...], Any] | Unmapped]:
    for one in found:
        yield Unmapped(place(one.path, within), one.why) if isinstance(one, Fault) else (one.path, one.value)


def records(source: ImportSource, key: str = "") -> Iterator[tuple[str, dict[str, Any]] | Unmapped]:
    """The objects of a file that is a list of them, an object with such a list under `key`, or lines of them."""
    for found in nodes(source.records()):
        if isinstance(found, Unmapped):
            yield found
            continue
        path, value = found
        if len(path) > 1 and path[0] != key:
            yield Unmapped(place(path[:1]), "it is no part of the memories")
        elif isinstance(value, dict):
            yield place(path), value
        elif len(path) == 1 and isinstance(path[0], str):
            yield Unmapped(place(path), "it is no part of the memories")
        else:
            yield Unmapped(place(path), "it is no JSON object")


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
