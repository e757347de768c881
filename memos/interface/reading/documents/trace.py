"""Turns a tool call, its purpose and its outcome into one statement.

Read are OpenAI's messages (`tool_calls`, and the message of role `tool` that answers each), and entries of
{call, result or error, task?, time?}, where call is {name, arguments} or the name beside `arguments`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from memos.errors import InputError
from memos.interface.reading.documents.parts import ToolCall, ended, one_line
from memos.interface.reading.phrasebook import require_text

_LONGEST_TASK, _LONGEST_CALL, _LONGEST_RESULT = 300, 1_000, 2_000  # characters that are kept of each
_HOW = 'write {"call": {"name": "...", "arguments": {...}}, "result": ...} or the same with "error"'


class _Open(NamedTuple):
    """A call that no result has come for yet."""

    tool: str
    words: str
    task: str
    time: datetime | None


class Trace:
    """The calls of one conversation; `task` is what the user asked for last."""

    def __init__(self) -> None:
        self.task = ""
        self._open: dict[str, _Open] = {}

    def is_step(self, entry: dict[str, object]) -> bool:
        """True for a call with its result in one entry."""
        return "call" in entry or ("content" not in entry and bool({"result", "error"} & entry.keys()))

    def step(self, entry: dict[str, object], time: datetime | None, where: str) -> ToolCall:
        """Raises InputError."""
        if "call" not in entry:
            raise InputError(f"{where}: a result without its call; {_HOW}")
        if ("result" in entry) == (entry.get("error") is not None):
            raise InputError(f"{where}: a call has either a result or an error; {_HOW}")
        call, task = entry["call"], entry.get("task", self.task)
        given = call if isinstance(call, dict) else {"name": call, "arguments": entry.get("arguments")}
        if not isinstance(task, str):
            raise InputError(f'{where}: "task" is {type(task).__name__}, not text; say in words what the call was for')
        began = _begun(given, task, time, where)
        failed = "result" not in entry
        return _ended(began, _json(entry["error" if failed else "result"], where), failed)

    def begin(self, entry: dict[str, object], time: datetime | None, where: str) -> None:
        """Take note of the calls in a message. Raises InputError."""
        calls = entry.get("tool_calls") or []
        if not isinstance(calls, list):
            raise InputError(f'{where}: "tool_calls" is {type(calls).__name__}, not a list; give it as OpenAI does')
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            id = call.get("id") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not isinstance(id, str):
                raise InputError(
                    f'{where}: a tool call is {{"id": "...", "type": "function", "function": {{"name": "...", '
                    f'"arguments": "..."}}}}, not {one_line(_json(call, where), 80)}; give it as OpenAI does'
                )
            self._open[id] = _begun(function, self.task, time, where)

    def end(self, entry: dict[str, object], result: str, where: str) -> ToolCall:
        """Raises InputError."""
        id = entry["tool_call_id"]
        began = self._open.pop(id, None) if isinstance(id, str) else None
        if began is None:
            raise InputError(
                f"{where}: a result without its call: no message before it has the tool call {id!r:.80}; put the "
                f"message with that call before it, or leave the result out"
            )
        return _ended(began, result, entry.get("is_error") is True or entry.get("status") == "error")

    def unfinished(self) -> Iterator[ToolCall]:
        """Calls that the conversation ended without a result for."""
        for began in self._open.values():
            yield _call(began, "no result is recorded")


def _begun(call: dict[str, object], task: str, time: datetime | None, where: str) -> _Open:
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{where}: a call names its tool as text, not {name!r:.80}; {_HOW}")
    for text in (name, task):
        require_text(text, where)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):  # a model wrote them
            require_text(str(arguments), where)
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={_json(value, where)}" for key, value in arguments.items())
        require_text(inside, where)
    else:
        inside = "" if arguments is None else arguments if isinstance(arguments, str) else _json(arguments, where)
    name = one_line(name, 100)
    return _Open(name, f"{name}({one_line(inside, _LONGEST_CALL)})", one_line(task, _LONGEST_TASK), time)


def _ended(began: _Open, outcome: str, failed: bool) -> ToolCall:
    come = one_line(outcome, _LONGEST_RESULT) or "nothing"
    return _call(began, f"it failed: {come}" if failed else f"it returned {come}")


def _call(began: _Open, outcome: str) -> ToolCall:
    task = f"Task: {ended(began.task)} " if began.task else ""
    return ToolCall(f"{task}{began.words} was called; {ended(outcome)}", began.tool, began.task, began.time)


def _json(value: object, where: str) -> str:
    """Text as it is, other values as JSON."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{where}: a value that is no JSON ({error!s:.80}); {_HOW}") from error
    require_text(text, where)
    return text
