"""Filters by themselves: mem0's operators, whose memories are meant, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from memos.errors import InputError
from memos.interface.doors.api.filters import fits, read

NOTE = {
    "kind": "note",
    "topic": "home",
    "tags": ["Urgent", "paid"],
    "created_at": "2026-03-01T10:00:00+00:00",
    "speaker": "",
    "metadata": {"category": "travel", "page": 7, "seen": True, "topic": "food", "title": "A Meeting", "gone": None},
}


def holds(filters: Any) -> bool:
    return fits(NOTE, read(filters, {})[1])


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"category": "travel", "kind": "note"},
        {"tags": "paid"},
        {"tags": ["Urgent", "paid"]},
        {"topic": "food"},
        {"category": {"eq": "travel"}, "page": {"ne": 8}},
        {"category": {"in": ["food", "travel"], "nin": ["work"]}},
        {"page": {"gt": 6, "gte": 7, "lt": 8, "lte": 7.0}},
        {"created_at": {"gte": "2026-03-01", "lt": "2026-03-02"}},
        {"title": {"contains": "Meet", "icontains": "MEET"}},
        {"tags": {"contains": "paid", "icontains": "urgent"}},
        {"category": "*", "missing": {"ne": "x"}, "gone": None},
        {"seen": True, "speaker": ""},
        {"OR": [{"category": "food"}, {"page": {"gte": 7}}], "kind": "note"},
        {"NOT": [{"category": "food"}, {"page": 8}]},
        {"AND": [{"OR": [{"kind": "fact"}, {"NOT": [{"kind": "fact"}]}]}, {"page": 7}], "seen": True},
        {"AND": [], "NOT": []},
    ],
)
def test_a_memory_is_as_the_filter_says(filters: dict[str, Any]) -> None:
    assert holds(filters)


@pytest.mark.parametrize(
    "filters",
    [
        {"category": "travel", "kind": "fact"},
        {"topic": "home"},  # what its metadata says stands before it
        {"category": {"nin": ["travel"]}},
        {"category": {"in": []}},
        {"page": {"gt": 7}},
        {"page": {"gte": "7"}},
        {"missing": {"gte": 0}},
        {"title": {"contains": "meet"}},
        {"gone": "*"},
        {"missing": "*"},
        {"AND": [{"kind": "fact"}, {"kind": "note"}]},
        {"AND": [{"kind": "note"}], "category": "food"},
        {"OR": [{"kind": "note"}], "AND": [{"category": "food"}]},
        {"OR": []},
        {"NOT": [{"kind": "fact"}, {"kind": "note"}]},
    ],
)
def test_a_memory_is_not_as_the_filter_says(filters: dict[str, Any]) -> None:
    assert not holds(filters)


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "ada", "run_id": "r", "AND": [{"kind": "fact"}]},
        {"AND": [{"user_id": "ada"}, {"AND": [{"run_id": "r"}]}, {"kind": "fact"}]},
    ],
)
def test_whose_memories_are_meant_is_kept_beside_all_else(filters: dict[str, Any]) -> None:
    scope, wanted = read(filters, {"user_id": "ada", "agent_id": None})
    assert scope == {"user_id": "ada", "agent_id": None, "run_id": "r"} and not fits(NOTE, wanted)


def nested(deep: int) -> Any:
    return {"AND": [nested(deep - 1)]} if deep else {}


@pytest.mark.parametrize(
    "filters, said",
    [
        ({"AND": "x"}, r"filters.AND is 'x', and a group is a list; give \[\{name: value\}"),
        ({"AND": 5}, "filters.AND is 5"),
        ({"OR": None}, "filters.OR is None"),
        ({"NOT": {"kind": "fact"}}, "filters.NOT is {'kind': 'fact'}, and a group is a list"),
        ({"AND": [1]}, "filters.AND.0 is 1, and conditions are a mapping"),
        ({"kind": {"in": None}}, "filters.kind.in is None; give a list"),
        ({"kind": {"contains": 5}}, "filters.kind.contains is 5; give a text"),
        ({"page": {"gte": True}}, "filters.page.gte is True; give a number or a text"),
        ({"kind": {"like": "x"}}, "filters.kind: 'like' is no operator; there are eq, ne, gt"),
        ({"kind": {}}, "filters.kind: there is no operator"),
        ({"run_id": 5}, "filters.run_id is 5, and whose memories are meant is one name"),
        ({"user_id": None}, "filters.user_id is None"),
        ({"user_id": "*"}, r"filters.user_id is '\*'"),
        ({"agent_id": {"in": ["a", "b"]}}, "filters.agent_id is .*; give .* there, and call once for each"),
        ({"OR": [{"user_id": "a"}, {"user_id": "b"}]}, "filters.OR.0.user_id is 'a'"),
        ({"NOT": [{"AND": [{"user_id": "a"}]}]}, "filters.NOT.0.AND.0.user_id is 'a'"),
        ({"user_id": "eve"}, "user_id is 'ada' and in filters 'eve'; give one of them"),
        ({"AND": [{"run_id": "a"}, {"run_id": "b"}]}, "run_id is 'a' and in filters.AND.1 'b'; give one of them"),
        (nested(50), "more than 20 groups deep; say it with fewer"),
    ],
)
def test_what_is_no_filter_is_refused(filters: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(filters, {"user_id": "ada"})
