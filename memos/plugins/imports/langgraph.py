"""Imports items of a LangGraph store (LangMem's too) from JSON, JSON lines or SqliteStore's file.

Followed: `Item.dict()` and the table `store` of libs/checkpoint-sqlite of langchain-ai/langgraph at 0075218, and the
values that LangMem writes (`{"kind": ..., "content": ...}`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memos.errors import InputError
from memos.plugins.imports import json_stream
from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.records import records
from memos.plugins.imports.source import ImportSource
from memos.plugins.langgraph.items import item_text

_KNOWN = ("namespace", "key", "value", "created_at", "updated_at", "score", "expires_at", "ttl_minutes")
_COLUMNS = ("prefix", "key", "value", "created_at", "updated_at", "expires_at")


def read(source: ImportSource) -> Iterator[Read]:
    if source.is_database:
        yield from _table(source)
        return
    for found in records(source, "items"):
        if isinstance(found, Unmapped):
            yield found
            continue
        place, record = found
        spaces = record.get("namespace", record.get("prefix", ""))
        spaces = spaces.split(".") if isinstance(spaces, str) else spaces
        if not isinstance(spaces, list) or not all(isinstance(space, str) for space in spaces):
            yield Unmapped(place, "its namespace is no list of words")
            continue
        yield _item(place, spaces, record)


def _table(source: ImportSource) -> Iterator[Read]:
    columns = source.tables().get("store", ())
    if not {*_COLUMNS[:3]} <= {*columns}:
        raise InputError(f"{source.path} has no table `store` of a LangGraph SqliteStore; give its file, or a dump")
    for n, row in enumerate(source.rows("store", tuple(c for c in _COLUMNS if c in columns), "prefix, key"), start=1):
        place = f"row {n}"
        raw = row["value"]
        text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
        if not isinstance(text, str) or json_stream.depth(text) > json_stream.DEEPEST:
            yield Unmapped(place, "its value is no text, too long, or nested too deep")
            continue
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            yield Unmapped(place, "its value is no JSON")
            continue
        yield _item(place, str(row["prefix"]).split("."), {**row, "value": value})


def _item(place: str, spaces: list[str], record: dict[str, Any]) -> Read:
    value = record.get("value")
    if not isinstance(value, dict):
        return Unmapped(place, "its value is no object")
    text, used = item_text(value)
    kind = value.get("kind")
    tags = [f"namespace:{'/'.join(spaces)}"] if any(spaces) else []
    return entry(
        place,
        text,
        "langgraph",
        f"{'/'.join(spaces)} {record.get('key')}",
        said=record.get("updated_at") or record.get("created_at"),
        expires=record.get("expires_at"),
        tags=[*tags, *([f"kind:{kind}"] if isinstance(kind, str) and kind != "Memory" else [])],
        owner="/".join(spaces),
        dropped=[*left_over(record, (*_KNOWN, "prefix")), *(f"value.{n}" for n in left_over(value, (*used, "kind")))],
    )


IMPORTER = Importer(
    read, members=frozenset({"items"}), fields=frozenset({"namespace", "prefix"}), tables=frozenset({"store"})
)
