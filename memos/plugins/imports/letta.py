"""Imports Letta's agent files (.af): memory blocks, the user's messages, and archival passages.

Followed: letta/schemas/agent_file.py of letta-ai/letta at 4184ae2 (`agents`, `blocks`, ...), and the schema before it
(`core_memory` and `messages` of one agent). The agent itself (its persona, system prompt, tools and settings) is no
memory, nor is what it said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.json_stream import DEEPEST, depth
from memos.plugins.imports.records import OWN_WORDS, listed, mapping, nodes, place
from memos.plugins.imports.source import ImportSource

_PASSAGES = ("passages", "archival_memory", "archival_passages")
_BLOCK = ("value", "limit", "label", "id", "description", "read_only", "is_template", "preserve_on_migration",
          "metadata", "hidden", "template_name")  # fmt: skip


def read(source: ImportSource) -> Iterator[Read]:
    for found in nodes(source.records()):
        if isinstance(found, Unmapped):
            yield found
            continue
        at, value = found
        where = place(at)
        match at[0] if at else None:
            case "agents" if len(at) == 2:
                agent = mapping(value)
                yield from _messages(f"{where}, messages", agent.get("messages"), agent.get("id"))
                for name in _PASSAGES:
                    for n, passage in enumerate(listed(agent.get(name))):
                        yield _passage(f"{where}, {name}, {n}", passage)
                yield Unmapped(where, "the agent itself, its prompt and its settings are no memories")
            case "blocks" | "core_memory" if len(at) == 2:
                yield _block(where, value)
            case "messages" if len(at) == 2:
                yield from _message(where, value, "agent")
            case "passages" | "archival_memory" | "archival_passages" if len(at) == 2:
                yield _passage(where, value)
            case "files" | "files_agents" if len(at) == 2:
                yield Unmapped(where, "it is an attached file; import it by itself")
            case _:
                yield Unmapped(place(at[:1]), "the agent itself, its prompt and its settings are no memories")


def _block(where: str, value: object) -> Read:
    block = mapping(value)
    label = block.get("label")
    if label == "persona":
        return Unmapped(where, "the agent itself, its prompt and its settings are no memories")
    dropped = left_over(block, _BLOCK)
    return entry(
        where, block.get("value"), "letta", block.get("id") or label, how="written", heading=str(label), dropped=dropped
    )


def _passage(where: str, value: object) -> Read:
    passage: dict[str, Any] = value if isinstance(value, dict) else {"text": value}
    text = passage.get("text", passage.get("content"))
    return entry(
        where,
        text,
        "letta",
        passage.get("id") or f"passage {passage.get('created_at', passage.get('timestamp'))}",
        said=passage.get("created_at", passage.get("timestamp")),
        tags=listed(passage.get("tags")),
        dropped=left_over(passage, ("text", "content", "id", "created_at", "timestamp", "tags", "embedding",
                                    "embedding_config", "archive_id", "organization_id", "metadata")),
    )  # fmt: skip


def _messages(where: str, messages: object, agent: object) -> Iterator[Read]:
    for n, message in enumerate(listed(messages)):
        yield from _message(f"{where}, {n}", message, agent)


def _message(where: str, value: object, agent: object) -> Iterator[Read]:
    message = mapping(value)
    if message.get("role") != "user":
        yield Unmapped(where, OWN_WORDS if message else "it is no message")
        return
    texts = _texts(message.get("content", message.get("text")))
    if not texts:
        yield Unmapped(where, "it is a message without text")
    for n, text in enumerate(texts):
        said, words = _unwrapped(text)
        if words is None:
            yield Unmapped(where, "it is an event of the program's, not of the user's")
            continue
        yield entry(
            where,
            words,
            "letta",
            f"{message.get('id') or where} {n}",
            how="spoken",
            speaker=message.get("name") or "User",
            said=message.get("created_at") or said,
            thread=agent or "",
        )


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [p["text"] for p in listed(content) if isinstance(p, dict) and isinstance(p.get("text"), str)]


def _unwrapped(text: str) -> tuple[object, str | None]:
    """(when, what) of a message that Letta has packed in JSON; what is None for one that nobody said."""
    try:
        packed = json.loads(text) if text.lstrip()[:1] == "{" and depth(text) <= DEEPEST else None
    except (ValueError, RecursionError):
        packed = None
    if not isinstance(packed, dict) or "type" not in packed:
        return None, text
    words = packed.get("message")
    return packed.get("time"), words if packed["type"] == "user_message" and isinstance(words, str) else None


IMPORTER = Importer(read, members=frozenset({"agents", "blocks", "core_memory"}))
