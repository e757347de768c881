"""Budgets: the best that fits, and fair shares."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.operation.choosing.mem_scheduler import BudgetItem, fill
from memos.operation.choosing.moves import shares

ITEMS = st.lists(st.builds(BudgetItem, st.integers(-2, 20), st.integers(0, 20)), max_size=10)


def best(items: list[BudgetItem], room: float) -> float:
    """The most that any subset within the room is worth, by trying all."""
    every = (part for n in range(len(items) + 1) for part in combinations(items, n))
    return max(sum(i.value for i in part) for part in every if sum(i.cost for i in part) <= room)


@given(ITEMS, st.integers(0, 60))
def test_the_choice_is_the_best_there_is(items: list[BudgetItem], room: int) -> None:
    chosen = [items[n] for n in fill(items, room)]
    assert sum(item.cost for item in chosen) <= room
    assert sum(item.value for item in chosen) == best(items, room)


def test_of_very_many_nearly_the_best_is_found() -> None:
    items = [BudgetItem(1 + (7 * n) % 101 / 100, 1 + (13 * n) % 97 / 97) for n in range(2000)]
    chosen, room = fill(items, 300.0), 300.0
    assert sum(items[n].cost for n in chosen) <= room
    ordered = sorted(items, key=lambda i: -i.value / i.cost)
    most = taken = 0.0
    for item in ordered:  # with one item cut: no choice is worth more
        part = min(1.0, (room - taken) / item.cost)
        most, taken = most + part * item.value, taken + part * item.cost
    assert sum(items[n].value for n in chosen) >= 0.99 * most


@pytest.mark.parametrize(
    "budget, wanted, expected",
    [
        (90, {"ann": 10, "bob": 100, "cy": 100}, {"ann": 10, "bob": 40, "cy": 40}),
        (90, {"ann": 10, "bob": 20}, {"ann": 10, "bob": 20}),
        (0, {"ann": 10}, {"ann": 0}),
        (5, {}, {}),
    ],
)
def test_who_wants_little_gets_it_and_the_rest_is_shared_evenly(
    budget: float, wanted: dict[str, float], expected: dict[str, float]
) -> None:
    assert shares(budget, wanted) == expected
