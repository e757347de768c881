"""JSON in pieces: each value is found, wherever the pieces are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.plugins.imports import json_stream
from memos.plugins.imports.json_stream import Fault, Node, documents, lines

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


def cut(text: str, size: int) -> Iterator[str]:
    return iter([text[n : n + size] for n in range(0, len(text), size)])


@given(st.lists(values), st.integers(1, 20), st.sampled_from([None, 2]), st.booleans())
def test_a_list_gives_its_elements(value: list[Any], size: int, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert list(documents(cut(text, size))) == [Node((n,), one) for n, one in enumerate(value)]


@given(st.dictionaries(st.text(), values), st.integers(1, 20))
def test_an_object_gives_its_members_and_what_is_in_them(value: dict[str, Any], size: int) -> None:
    wanted = []
    for key, held in value.items():
        inner = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else None
        wanted += [Node((key,), held)] if inner is None else [Node((key, at), one) for at, one in inner]
    assert list(documents(cut(json.dumps(value), size))) == wanted


@given(st.lists(values, min_size=1), st.integers(1, 20), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_lines_give_their_values(value: list[Any], size: int, end: str) -> None:
    text = end.join(json.dumps(one) for one in value)
    assert [one.value for one in lines(cut(text, size)) if isinstance(one, Node)] == value


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text, good, why",
    [
        ('[1, {"a": x}, 2]', [1, 2], "it is not JSON"),
        ("[1, 2", [1, 2], "from here on it is not JSON: it ends within a list or an object"),
        ("[1] x", [1], "something stands behind the end of the JSON"),
        ('[1, "a', [1], "from here on it is not JSON: it ends within a value"),
        ("[1, " + "[" * 200 + "]" * 200 + ", 2]", [1, 2], "it is nested deeper than 100 levels"),
        ("[1, " + "9" * 5000 + ", 2]", [1, 2], "it is no usable JSON"),
    ],
)
def test_a_fault_is_told_and_what_can_be_read_is(text: str, good: list[Any], why: str, size: int) -> None:
    found = list(documents(cut(text, size)))
    assert [one.value for one in found if isinstance(one, Node)] == good
    assert [one.why for one in found if isinstance(one, Fault)] == [why]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_value_that_is_too_long_is_passed_over(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LONGEST", 30)
    text = json.dumps([1, {"a": "]" * 100}, "x" * 100, 2])
    assert [type(one).__name__ for one in documents(cut(text, size))] == ["Node", "Fault", "Fault", "Node"]
