"""The formats by name, and which of them a file or a folder is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from memos.errors import EmptyMemory, InputError
from memos.plugins.imports import chatgpt, langgraph, letta, lines, markdown, mem0, memoryos
from memos.plugins.imports.entry import Read
from memos.plugins.imports.json_stream import Node
from memos.plugins.imports.records import mapping
from memos.plugins.imports.source import Source

FORMATS: dict[str, Callable[[Source], Iterator[Read]]] = {
    "mem0": mem0.read,
    "memoryos": memoryos.read,
    "langgraph": langgraph.read,
    "letta": letta.read,
    "jsonl": lines.read,
    "markdown": markdown.read,
    "chatgpt": chatgpt.read,
}
_LOOKED_AT = 50  # records
# members of an object, and fields of a record, that only one format has; the first that is found decides
_MEMBERS = {
    "results": "mem0",
    "agents": "letta",
    "blocks": "letta",
    "core_memory": "letta",
    "sessions": "memoryos",
    "user_profiles": "memoryos",
    "knowledge_base": "memoryos",
    "assistant_knowledge": "memoryos",
    "items": "langgraph",
}
_FIELDS = {
    "mapping": "chatgpt",
    "namespace": "langgraph",
    "prefix": "langgraph",
    "user_input": "memoryos",
    "memory": "mem0",
    "text": "jsonl",
}


def detected(source: Source) -> str:
    """The name of the format, by what stands there. Raises InputError, EmptyMemory."""
    if source.is_folder:
        found = _of_folder(source)
    elif source.is_archive:
        found = "chatgpt"
    elif source.is_database:
        found = _of_database(source)
    elif source.path.suffix.lower() in (".md", ".markdown"):
        found = "markdown"
    else:
        found = _of_json(source)
    if found is None:
        raise InputError(f"{source.path} is in no format that is known; name one with --as: {', '.join(FORMATS)}")
    return found


def _of_folder(source: Source) -> str | None:
    names = {path.name for path in source.files(".json", ".md", ".markdown") if isinstance(path, Path)}
    if names & {*memoryos.FILES}:
        return "memoryos"
    if any(chatgpt.FILE.search(name) for name in names):
        return "chatgpt"
    return "markdown" if any(name.lower().endswith((".md", ".markdown")) for name in names) else None


def _of_database(source: Source) -> str | None:
    tables = source.tables()
    known = {"store": "langgraph", "history": "mem0", "points": "mem0"}
    return next((name for table, name in known.items() if table in tables), None)


def _of_json(source: Source) -> str | None:
    nothing = True
    for node in islice(source.records(), _LOOKED_AT):
        nothing = False
        if not isinstance(node, Node):
            continue
        if isinstance(node.path[:1], tuple) and len(node.path) and node.path[0] in _MEMBERS:
            return _MEMBERS[str(node.path[0])]
        fields = mapping(node.value)
        if found := next((name for field, name in _FIELDS.items() if field in fields), None):
            return found
    if nothing:
        raise EmptyMemory(f"{source.path} is empty: there is nothing to import")
    return None
