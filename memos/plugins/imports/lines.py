"""Imports plain JSON lines, memos' own format, of which only `text` is needed."""

from __future__ import annotations

from collections.abc import Iterator

from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.records import listed, records
from memos.plugins.imports.source import ImportSource

_KNOWN = ("id", "text", "user", "said", "kind", "tags", "speaker", "thread", "expires")


def read(source: ImportSource) -> Iterator[Read]:
    for found in records(source):
        if isinstance(found, Unmapped):
            yield found
            continue
        place, record = found
        tags = record.get("tags")
        yield entry(
            f"line {place}",
            record.get("text"),
            "jsonl",
            record.get("id") or "",
            speaker=record.get("speaker", ""),
            said=record.get("said"),
            expires=record.get("expires"),
            thread=record.get("thread", ""),
            kind=record.get("kind", ""),
            tags=tags.split(",") if isinstance(tags, str) and tags else listed(tags),
            owner=record.get("user", ""),
            dropped=left_over(record, _KNOWN),
        )


IMPORTER = Importer(read, fields=frozenset({"text"}), rank=3)
