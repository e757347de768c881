"""Chooses what fits a budget: the most valuable selection, and each user's fair share; pure functions.

Knows values and costs; knows not what they are of.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
MAX_PARTIAL_CHOICES = 256  # beyond, every other one is dropped


class BudgetItem(NamedTuple):
    """value: in any one unit, more is better; cost: what it takes of the budget, 0 or more."""

    value: float
    cost: float


class _Choice(NamedTuple):
    cost: float
    value: float
    last: int  # the last item in it, -1 for none
    before: _Choice | None


def fill(items: Sequence[BudgetItem], room: float) -> list[int]:
    """The places of the items that are worth most together and fit the room, in order; those of no value are left out.

    Exact, by the choices that no other is both cheaper and better than (Nemhauser and Ullmann, 1969), as long as these
    are few; of more than some hundreds every other one is dropped on the way.
    """
    front = [_Choice(0.0, 0.0, -1, None)]
    order = sorted(range(len(items)), key=lambda n: -_density(items[n]))  # the best first: bounds get sharp early
    for n in order:
        value, cost = items[n]
        if value <= 0 or cost > room:
            continue
        more = [_Choice(c.cost + cost, c.value + value, n, c) for c in front if c.cost + cost <= room]
        front = _undominated(sorted([*front, *more], key=lambda c: (c.cost, -c.value)))
        if len(front) > MAX_PARTIAL_CHOICES:
            front = front[:1] + front[1 :: len(front) // MAX_PARTIAL_CHOICES + 1] + front[-1:]
    chosen, choice = list[int](), front[-1]
    while choice.before is not None:
        chosen.append(choice.last)
        choice = choice.before
    return sorted(chosen)


def _density(item: BudgetItem) -> float:
    return item.value / item.cost if item.cost else float("inf")


def _undominated(choices: Sequence[_Choice]) -> list[_Choice]:
    """Of choices in the order of their cost, those that are better than every cheaper one."""
    better = list[_Choice]()
    for choice in choices:
        if not better or choice.value > better[-1].value:
            better.append(choice)
    return better


def shares(budget: float, wanted: Mapping[Key, float]) -> dict[Key, float]:
    """What each may take of a budget: what it wants, as long as nobody who gets less than it wants could be given more
    by taking from one who has more (max-min fairness, by filling up from the least)."""
    out: dict[Key, float] = {}
    left = budget
    for n, key in enumerate(sorted(wanted, key=lambda key: wanted[key])):
        out[key] = min(wanted[key], left / (len(wanted) - n))
        left -= out[key]
    return out


def above(worth: Sequence[BudgetItem], used: float, low: float, high: float) -> list[int]:
    """The places of what is to go so that the rest fits `low`, once what is used is above `high`: those of least worth
    for their cost. Between the two marks nothing moves, so that one more does not push out one each time."""
    if used <= high:
        return []
    going, order = list[int](), sorted(range(len(worth)), key=lambda n: (_density(worth[n]), n))
    for n in order:
        if used <= low:
            break
        used -= worth[n].cost
        going.append(n)
    return sorted(going)
