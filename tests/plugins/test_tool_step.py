"""Steps with tools: schemas of others are given bounds, and what a model writes is read, also where it was cut."""

from __future__ import annotations

from typing import Any

import pytest

from memos.errors import InputError
from memos.infrastructure.host.model.constrained import max_answer_tokens
from memos.plugins.tool_step import (
    MAX_ITEMS,
    MAX_TEXT,
    Tool,
    ToolStep,
    bounded_parameters,
    closed,
    fenced,
    instructions,
    read_step,
    step_schema,
    text,
)

WEATHER = Tool("weather", "how it is there", closed({"city": {"enum": ["Oslo", "Rome"]}, "days": text(9)}, ["city"]))


@pytest.mark.parametrize(
    "given, form",
    [
        ({"type": "string"}, text(MAX_TEXT)),
        ({"type": "string", "maxLength": 5, "format": "int64"}, text(5)),
        ({"type": "string", "format": "date"}, {**text(MAX_TEXT), "format": "date"}),
        ({"const": 1}, {"enum": [1]}),
        ({"type": ["string", "null"]}, {"anyOf": [text(MAX_TEXT), {"enum": [None]}]}),
        ({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Day"}]}, {"anyOf": [{"enum": [None]}, {"enum": ["Mon"]}]}),
        (
            {"type": "integer", "minimum": 0, "description": "of days"},
            {"type": "integer", "minimum": 0, "maximum": 10**9, "description": "of days"},
        ),
        (
            {"type": "number"},
            {"type": "number", "minimum": -(10**9), "maximum": 10**9, "multipleOf": 0.0001},
        ),
        (
            {"type": "array", "items": {"type": "boolean"}},
            {"type": "array", "items": {"type": "boolean"}, "maxItems": MAX_ITEMS},
        ),
    ],
)  # fmt: skip
def test_a_schema_without_an_end_is_given_one(given: dict[str, Any], form: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"x": given}, "$defs": {"Day": {"enum": ["Mon"]}}}
    bounded = bounded_parameters(whole, "f")
    assert bounded == closed({"x": form}, ())
    assert max_answer_tokens(bounded) > 0


@pytest.mark.parametrize(
    "given, told",
    [
        ({"type": "array"}, r"f\.x cannot be held to .*array with items"),
        ({"type": "object"}, r"f\.x cannot be held to"),
        ({}, r"f\.x cannot be held to \{\}"),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, r"f\.x cannot be held to"),
        ({"$ref": "#"}, r"f\.x cannot be held to"),
        ({"anyOf": [{"$ref": "#/$defs/Tree"}] * 2}, "more than 256 parts, or refers to itself"),
        ({"type": "string", "minLength": "x"}, "f is no JSON Schema"),
    ],
)
def test_a_schema_that_cannot_have_one_is_refused_by_its_place(given: dict[str, Any], told: str) -> None:
    tree = {"anyOf": [{"$ref": "#/$defs/Tree"}] * 2}
    with pytest.raises(InputError, match=told):
        bounded_parameters({"type": "object", "properties": {"x": given}, "$defs": {"Tree": tree}}, "f")


def test_steps_are_bounded_and_noted_in_a_line() -> None:
    assert max_answer_tokens(step_schema([WEATHER], longest=10)) == max_answer_tokens(step_schema([WEATHER], False))
    assert 'weather{city: "Oslo"|"Rome", days?: text}: how it is there' in instructions([WEATHER])


@pytest.mark.parametrize(
    "written, step",
    [
        ('{"answer": " yes "}', ToolStep(answer="yes")),
        ('{"tool": "weather", "arguments": {"city": "Rome"}}', ToolStep("weather", {"city": "Rome"})),
        ('{"answer": "It rai', ToolStep(answer="It rai", whole=False)),
        ('{"tool": "wea', ToolStep(whole=False)),
        ('{"tool": "weather", "arguments": {"ci', ToolStep("weather", {}, whole=False)),
    ],
)
def test_a_step_is_read_as_far_as_it_goes(written: str, step: ToolStep) -> None:
    assert read_step(written, [WEATHER]) == step


@pytest.mark.parametrize(
    "written, told",
    [
        ('{"tool": "wether", "arguments": {}}', "no tool 'wether'; did you mean weather?"),
        ("I think so.", "is no step"),
        ("[]", "is no step"),
        ('{"tool": "weather"}', "is no step"),
    ],
)
def test_what_is_no_step_is_told(written: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_step(written, [WEATHER])


def test_a_result_cannot_end_its_fence() -> None:
    assert fenced("a </result> b ＜/result>").count("</result>") == 1
    assert "＜" not in fenced("＜/result>")
