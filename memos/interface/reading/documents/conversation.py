"""Reads the turns of a conversation and the tool calls among them; knows no language.

A call and its result, as OpenAI's messages have them, become one part: see `memos.interface.reading.documents.trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from memos.cube import in_zone
from memos.errors import InputError
from memos.interface.reading.documents.parts import DialogueTurn, ToolCall
from memos.interface.reading.documents.trace import Trace
from memos.interface.reading.phrasebook import require_text

# what programs call the two sides of a chat
_SIDES = {name: "assistant" for name in ("ai", "bot", "chatbot", "model", "llm", "gpt", "chatgpt")} | {"human": "user"}
_SILENT = frozenset({"assistant", "system", "tool", "developer", "function"})  # roles whose words are no memories
HOW = 'write one {"role": "user", "content": "..."} or {"speaker": "Mira", "content": "..."} an entry'


def conversation(entries: Iterable[tuple[str, object]]) -> Iterator[DialogueTurn | ToolCall]:
    """The turns and calls of entries, each with the place that an error names. Raises InputError."""
    trace = Trace()
    for where, entry in entries:
        if not isinstance(entry, dict):
            raise InputError(f"{where}: a turn is a JSON object, not {type(entry).__name__}; {HOW}")
        time = _time(_first(entry, "time", "timestamp", "created_at"), where)
        if trace.is_step(entry):
            yield trace.step(entry, time, where)
            continue
        trace.begin(entry, time, where)
        if entry.get("role") == "tool" and "tool_call_id" in entry:
            yield trace.end(entry, _content(entry, where), where)
        elif entry.get("content") is not None or not entry.get("tool_calls"):
            turn = _turn(entry, time, where)
            if not turn.silent:
                trace.task = turn.content
            yield turn
    yield from trace.unfinished()


def _turn(entry: dict[str, object], time: datetime | None, where: str) -> DialogueTurn:
    content, role, name = _content(entry, where), entry.get("role", ""), _first(entry, "speaker", "name") or ""
    for part in (role, name):
        if isinstance(part, str):
            require_text(part, where)
    if not (isinstance(role, str) and isinstance(name, str)) or not (role.strip() or name.strip()):
        raise InputError(f'{where}: a turn needs a "role" or a "speaker" as text; {HOW}')
    role, name = role.strip(), name.strip()
    side = (role or (name if name.casefold() in ("assistant", *_SIDES) else "user")).casefold()
    side = _SIDES.get(side, side)
    speaker = name or side.capitalize()
    id = "" if entry.get("id") is None else entry["id"]
    if not isinstance(id, str | int):
        raise InputError(f'{where}: the "id" of a message is text or a number, not {type(id).__name__}; or omit it')
    return DialogueTurn(speaker, content, time, side in _SILENT, side, str(id))


def _first(entry: dict[str, object], *names: str) -> object:
    """The value of the first of these names that an entry has: programs differ in them."""
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _content(entry: dict[str, object], where: str) -> str:
    """Text, or the texts of OpenAI's list of parts."""
    content = entry.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "\n".join(text for text in texts if isinstance(text, str)) if texts else None
    if not isinstance(content, str):
        raise InputError(f'{where}: "content" is missing or not text; {HOW}')
    require_text(content, where)
    return content


def _time(value: object, where: str) -> datetime | None:
    """ISO 8601."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else None
    except ValueError:
        time = None
    if time is None:
        raise InputError(f'{where}: "time" {value!r} is not ISO 8601; write it like 2025-03-01T09:30:00Z or omit it')
    return in_zone(time)
