"""Imports MemoryOS' files of short, middle and long term, one of them or the folder they are in.

Followed: memoryos-pypi of BAI-LAB/MemoryOS at 7e36842. Its times are local and without a zone; they are taken for
UTC. What it made by itself of its pages (summaries, keywords, heat, embeddings) is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.records import OWN_WORDS, listed, mapping, nodes, place
from memos.plugins.imports.source import ImportSource

FILES = ("short_term.json", "mid_term.json", "long_term_user.json", "long_term_assistant.json")
_PAGE = ("user_input", "agent_response", "timestamp", "page_id", "page_embedding", "page_keywords", "pre_page",
         "next_page", "meta_info", "preloaded", "analyzed")  # fmt: skip


def read(source: ImportSource) -> Iterator[Read]:
    for path in source.files(".json"):
        if isinstance(path, Unmapped):
            yield path
        elif source.is_folder and path.name not in FILES:
            yield Unmapped(source.place(path), "it is no file of MemoryOS'")
        else:
            yield from _file(source, path)


def _file(source: ImportSource, path: Path) -> Iterator[Read]:
    within = source.place(path) if source.is_folder else ""
    owner = path.parent.name if path.parent.parent.name == "users" else ""
    for found in nodes(source.records(path), within):
        if isinstance(found, Unmapped):
            yield found
            continue
        at, value = found
        where = place(at, within)
        match at[0] if at else None:
            case int():
                yield from _page(where, value, "", owner)
            case "sessions" if len(at) == 2:
                for n, page in enumerate(listed(mapping(value).get("details"))):
                    yield from _page(f"{where}, {n}", page, str(at[1]), owner)
                if not isinstance(mapping(value).get("details"), list):
                    yield Unmapped(where, "it is a session without pages")
            case "user_profiles" if len(at) == 2:
                yield _profile(where, value, str(at[1]))
            case "knowledge_base" | "assistant_knowledge" if len(at) == 2:
                yield _knowledge(where, value, owner if at[0] == "knowledge_base" else "", str(at[0]))
            case _:
                yield Unmapped(place(at[:1], within), "it is what MemoryOS made of its pages")


def _page(where: str, page: object, session: str, owner: str) -> Iterator[Read]:
    if not isinstance(page, dict):
        yield Unmapped(where, "it is no page")
        return
    said, text = page.get("timestamp"), page.get("user_input")
    yield entry(
        where,
        text,
        "memoryos",
        page.get("page_id") or f"{session} {said}",
        how="spoken",
        speaker="User",
        said=said,
        thread=session,
        owner=owner,
        dropped=left_over(page, _PAGE),
    )
    if page.get("agent_response"):
        yield Unmapped(f"{where}, agent_response", OWN_WORDS)


def _profile(where: str, profile: object, owner: str) -> Read:
    data = mapping(profile).get("data")
    text = (
        "\n".join(f"{k}: {v}" for k, v in data.items() if isinstance(v, (str, int))) if isinstance(data, dict) else data
    )
    said = mapping(profile).get("last_updated")
    return entry(where, text, "memoryos", f"profile of {owner}", said=said, kind="profile", owner=owner)


def _knowledge(where: str, item: object, owner: str, of: str) -> Read:
    record: dict[str, Any] = item if isinstance(item, dict) else {"knowledge": item}
    return entry(
        where,
        record.get("knowledge"),
        "memoryos",
        f"{of} {record.get('timestamp')}",
        said=record.get("timestamp"),
        owner=owner,
        tags=["assistant"] if of == "assistant_knowledge" else [],
        dropped=left_over(record, ("knowledge", "timestamp", "knowledge_embedding")),
    )


IMPORTER = Importer(
    read,
    members=frozenset({"sessions", "user_profiles", "knowledge_base", "assistant_knowledge"}),
    fields=frozenset({"user_input"}),
    files=re.compile(rf"^(?:{'|'.join(map(re.escape, FILES))})$"),
    rank=0,
)
