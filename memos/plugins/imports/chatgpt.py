"""Imports ChatGPT's export: what the user wrote on the current branch of each conversation.

Reads conversations.json, the folder or the archive with it.

Followed: the export of OpenAI's data controls, 2023 to 2026 (`mapping`, `current_node`; since 2026 also in parts,
conversations-000.json).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from memos.plugins.imports.entry import Read, Unmapped, entry
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.json_stream import Fault, Node
from memos.plugins.imports.records import OWN_WORDS, listed, mapping, nodes, place
from memos.plugins.imports.source import ImportSource

FILE = re.compile(r"(?:^|/)conversations(?:-\d+)?\.json$")


def read(source: ImportSource) -> Iterator[Read]:
    if source.is_archive:
        for name, found in source.archived(FILE):
            yield from _conversations(found, name)
        return
    for path in source.files(".json"):
        if isinstance(path, Unmapped):
            yield path
        elif not source.is_folder or FILE.search(path.name):
            yield from _conversations(source.records(path), source.place(path) if source.is_folder else "")


def _conversations(found: Iterator[Node | Fault], within: str) -> Iterator[Read]:
    for one in nodes(found, within):
        if isinstance(one, Unmapped):
            yield one
            continue
        at, value = one
        where, conversation = place(at, within), mapping(value)
        if not isinstance(conversation.get("mapping"), dict):
            yield Unmapped(where, "it is no conversation")
            continue
        yield from _conversation(where, conversation)


def _conversation(where: str, conversation: dict[str, Any]) -> Iterator[Read]:
    tree = conversation["mapping"]
    id = conversation.get("conversation_id") or conversation.get("id") or conversation.get("title")
    branch = _branch(tree, conversation.get("current_node"))
    for name in branch:
        yield from _message(f"{where}, {str(name)[:80]}", mapping(mapping(tree[name]).get("message")), name, id)
    if other := sum(1 for name, node in tree.items() if name not in branch and mapping(node).get("message")):
        yield Unmapped(f"{where}, {other} messages", "they are of a branch that was given up")


def _branch(tree: dict[str, Any], leaf: object) -> dict[str, None]:
    """The names of the nodes from the root to the current one; where none is named, to the last that was written."""
    if not isinstance(leaf, str) or leaf not in tree:
        parents = {mapping(node).get("parent") for node in tree.values() if _is_name(mapping(node).get("parent"))}
        leaves = [name for name in tree if name not in parents]
        leaf = leaves[-1] if leaves else None
    path: dict[str, None] = {}
    while isinstance(leaf, str) and leaf in tree and leaf not in path:  # a circle ends where it began
        path[leaf] = None
        leaf = mapping(tree[leaf]).get("parent")
    return dict.fromkeys(reversed(path))


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _message(where: str, message: dict[str, Any], name: str, thread: object) -> Iterator[Read]:
    where = where.encode("utf-8", "replace").decode()
    role, content = mapping(message.get("author")).get("role"), mapping(message.get("content"))
    if not message or role == "system":
        return
    if role != "user":
        yield Unmapped(where, OWN_WORDS)
        return
    kind, parts = content.get("content_type"), listed(content.get("parts"))
    text = "\n".join(part for part in parts if isinstance(part, str))
    if not text.strip():
        of = kind if isinstance(kind, str) and re.fullmatch(r"[a-z_]{1,40}", kind) else "another kind"
        yield Unmapped(where, f"it is a message without text, of {of}")
        return
    lost = ["parts that are no text"] if any(not isinstance(part, str) for part in parts) else []
    yield entry(
        where,
        text,
        "chatgpt",
        name,
        how="spoken",
        speaker="User",
        said=message.get("create_time"),
        thread=thread or "",
        dropped=lost,
    )


IMPORTER = Importer(read, fields=frozenset({"mapping"}), files=FILE, archives=True)
