"""Calls of tools, as conversations and logs have them, to memories that are found by their task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memos.errors import InputError
from memos.interface.reading.mem_reader import MemReader
from memos.ops import Add

reader = MemReader()


def call(name: str, arguments: str, id: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(content: Any, id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


ASKED = {"role": "user", "content": "Will it rain in Oslo tomorrow?"}
STEP = {"call": {"name": "weather", "arguments": {"city": "Oslo", "days": 1}}, "task": "Will it rain in Oslo tomorrow?"}


@pytest.mark.parametrize(
    "entries, texts",
    [
        (
            [ASKED, call("weather", '{"city": "Oslo", "days": 1}'), result('{"rain":\n true}')],
            ['Task: Will it rain in Oslo tomorrow? weather(city=Oslo, days=1) was called; it returned {"rain": true}.'],
        ),
        (
            [STEP | {"result": {"rain": True}}],
            ['Task: Will it rain in Oslo tomorrow? weather(city=Oslo, days=1) was called; it returned {"rain": true}.'],
        ),
        (
            [STEP | {"error": "no such city"}],
            ["Task: Will it rain in Oslo tomorrow? weather(city=Oslo, days=1) was called; it failed: no such city."],
        ),
        (
            [call("f", "not JSON"), result([{"type": "text", "text": "timeout!"}], status="error")],
            ["f(not JSON) was called; it failed: timeout!"],
        ),
        ([{"call": "now", "result": None}], ["now() was called; it returned null."]),
        ([{"call": "f", "arguments": [1, 2], "result": ""}], ["f([1, 2]) was called; it returned nothing."]),
        ([call("f", "{}")], ["f() was called; no result is recorded."]),
        (
            [call("f", "{}", "a"), call("g", "{}", "b"), result("2", "b"), result("1", "a")],
            ["g() was called; it returned 2.", "f() was called; it returned 1."],
        ),
    ],
)
def test_a_call_and_what_came_of_it_are_one_memory(entries: list[dict[str, Any]], texts: list[str]) -> None:
    assert [op.text for op in reader.read_turns(entries, "turns")] == texts


def test_a_trace_is_of_its_tools_and_of_its_task() -> None:
    said, asked = {"role": "user", "content": "I live in Oslo."}, ASKED | {"time": "2025-03-01T09:00:00Z"}
    begun = call("weather", "{}") | {"time": "2025-03-01T09:00:01Z"}
    statement, trace = reader.read_turns([said, asked, begun, result("rain")], "turns")
    assert (statement.text, statement.kind, statement.origin) == ("User: I live in Oslo.", "fact", "turns")
    assert (trace.kind, trace.origin, trace.segment) == ("tool-trace", "tool:turns", ASKED["content"])
    assert trace.said and trace.said.second == 1


def test_of_a_long_result_the_beginning_is_kept() -> None:
    [op] = reader.read_turns([STEP | {"result": "x" * 100_000}], "turns")
    assert len(op.text) < 2_500 and op.text.endswith("x… (100,000 characters).")


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.json"])
def test_a_trace_in_a_file_is_read_as_one_in_turns(tmp_path: Path, name: str) -> None:
    entries = [ASKED, call("weather", "{}"), result("rain"), STEP | {"error": "down"}]
    lines = json.dumps(entries) if name.endswith("json") else "\n".join(map(json.dumps, entries))
    (tmp_path / name).write_text(lines)
    read = [op for op in reader.read_content(tmp_path / name)[0] if isinstance(op, Add)]
    assert [op.text for op in read] == [op.text for op in reader.read_turns(entries, "turns")]
    assert {op.origin for op in read} == {f"tool:{tmp_path / name}"}


@pytest.mark.parametrize(
    "entry, message",
    [
        (result("rain"), r"turn 1: a result without its call: no message before it has the tool call 'c1'"),
        ({"result": 1}, r"turn 1: a result without its call; write"),
        ({"error": "x"}, r"turn 1: a result without its call; write"),
        ({"call": "f"}, r"turn 1: a call has either a result or an error"),
        ({"call": "f", "result": 1, "error": "x"}, r"turn 1: a call has either a result or an error"),
        ({"call": {"arguments": {}}, "result": 1}, r"turn 1: a call names its tool as text, not None"),
        ({"call": " ", "result": 1}, r"turn 1: a call names its tool as text, not ' '"),
        ({"call": "f", "result": 1, "task": 3}, r'turn 1: "task" is int, not text'),
        ({"call": "f", "result": "\ud800"}, r"turn 1: character 1 is half of one"),
        ({"role": "assistant", "content": None, "tool_calls": {"a": 1}}, r'turn 1: "tool_calls" is dict, not a list'),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": 3}]}, r"turn 1: a tool call is \{\"id\""),
        ({"role": "assistant", "content": None, "tool_calls": []}, r'turn 1: "content" is missing'),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, r'turn 1: "content" is missing'),
    ],
)
def test_a_trace_that_makes_no_sense_is_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reader.read_turns([entry], "chat")
