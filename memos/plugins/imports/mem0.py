"""Imports mem0's exports: what `get_all` returns, as JSON or JSON lines, and history.db.

Followed: mem0/memory/storage.py of mem0ai/mem0 at 04111ef (the table `history`), `get_all` of the library
(`{"results": [...]}`) and of the platform's v1 API (a list).
The vector stores that mem0 keeps on this machine (Qdrant's and FAISS') hold pickles, which memos never opens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from memos.errors import InputError
from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.records import listed, mapping, records
from memos.plugins.imports.source import ImportSource

_KNOWN = frozenset(
    "id memory hash metadata categories created_at updated_at user_id actor_id run_id expiration_date score".split()
)
_COLUMNS = ("memory_id", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id")


def read(source: ImportSource) -> Iterator[Read]:
    if not source.is_database:
        for found in records(source, "results"):
            yield found if isinstance(found, Unmapped) else _memory(*found)
        return
    tables = source.tables()
    if "points" in tables and "history" not in tables:
        raise InputError(
            f"{source.path} is a store of Qdrant, which holds pickles, and memos opens none; write the memories to a "
            f"file with `json.dump(memory.get_all(user_id=...), file)` and import that"
        )
    if not {*_COLUMNS[:4]} <= {*tables.get("history", ())}:
        raise InputError(f"{source.path} has no table `history` of mem0's; give its history.db, or a dump of get_all")
    yield from _history(source, tuple(c for c in _COLUMNS if c in tables["history"]))
    if "messages" in tables:
        yield Unmapped("messages", "the last messages of a session are what memories were made of")


def _memory(place: str, record: dict[str, Any]) -> Read:
    metadata = mapping(record.get("metadata"))
    tags = [*listed(record.get("categories")), *(f"{k}:{v}" for k, v in metadata.items() if _is_word(v))]
    odd = [f"metadata.{name}" for name in left_over({k: v for k, v in metadata.items() if not _is_word(v)}, ())]
    return entry(
        place,
        record.get("memory"),
        "mem0",
        record.get("id"),
        speaker=record.get("actor_id") or "",
        said=record.get("updated_at") or record.get("created_at"),
        expires=record.get("expiration_date"),
        thread=record.get("run_id") or "",
        tags=tags,
        owner=record.get("user_id") or "",
        dropped=[*left_over(record, _KNOWN), *odd],
    )


def _is_word(value: object) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and len(str(value)[:101]) <= 100


def _history(source: ImportSource, columns: tuple[str, ...]) -> Iterator[Read]:
    """What each memory came to say; the table tells of every change of it."""
    rows = source.rows("history", columns, "memory_id, rowid")
    for id, changes in groupby(rows, lambda row: row["memory_id"]):
        count = 0
        for count, row in enumerate(changes, start=1):  # noqa: B007  the last one is wanted
            pass
        place = f"memory {str(id)[:80]}".encode("utf-8", "replace").decode()
        if row["event"] == "DELETE" or row.get("is_deleted"):
            yield Unmapped(place, "it was deleted in mem0")
            continue
        yield entry(
            place,
            row["new_memory"],
            "mem0",
            id,
            speaker=row.get("actor_id") or "",
            said=row.get("updated_at") or row.get("created_at"),
            dropped=["earlier versions"] if count > 1 else [],
        )


IMPORTER = Importer(
    read, members=frozenset({"results"}), fields=frozenset({"memory"}), tables=frozenset({"history", "points"}), rank=2
)
