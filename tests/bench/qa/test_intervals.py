"""Intervals over conversations, and tests of two systems in pairs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from memos.bench.qa.intervals import difference, interval
from memos.errors import InputError

FIVE = [f"c{n % 5}" for n in range(200)]


def test_questions_about_one_conversation_are_not_taken_for_independent():
    """Conversations that differ: 200 questions tell little more than 5 figures."""
    alike = [float(n % 5 < 3) for n in range(200)]
    mixed = [float(n // 5 % 5 < 3) for n in range(200)]
    wide, narrow = interval(alike, FIVE), interval(mixed, FIVE)
    assert wide.mean == narrow.mean == 0.6
    assert wide.over == "conversations"
    assert wide.high - wide.low > 0.6 > 0.01 > narrow.high - narrow.low


def test_of_one_conversation_the_questions_are_drawn_and_it_says_so():
    found = interval([1.0, 0.0] * 50, ["c"] * 100)
    assert (found.over, found.mean, found.questions) == ("questions", 0.5, 100)
    assert found.low == pytest.approx(0.4, abs=0.011) and found.high == pytest.approx(0.6, abs=0.011)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(3)
    held = [interval(list(rng.normal(size=60)), ["c"] * 60, seed=n) for n in range(20)]
    assert sum(found.low <= 0 <= found.high for found in held) >= 17


def test_the_same_questions_in_another_order_give_the_same():
    rng = random.Random(1)
    rows = [(rng.random(), rng.random(), name) for name in FIVE]
    shuffled = rng.sample(rows, len(rows))
    assert interval(*zip(*[(a, c) for a, _, c in rows], strict=True)) == interval(
        *zip(*[(a, c) for a, _, c in shuffled], strict=True)
    )
    assert difference(*zip(*rows, strict=True)) == difference(*zip(*shuffled, strict=True))
    assert interval([0.1, 0.2, 0.9] * 9, ["c"] * 27, seed=1) != interval([0.1, 0.2, 0.9] * 9, ["c"] * 27, seed=2)


def test_a_small_difference_on_every_question_is_seen_in_pairs():
    rng = random.Random(2)
    base = [rng.random() for _ in FIVE]
    better = [value + 0.02 + rng.random() / 50 for value in base]
    found = difference(better, base, FIVE)
    assert found.p < 0.001 and 0.02 < found.low < found.mean < found.high < 0.04
    alone, other = interval(better, FIVE), interval(base, FIVE)
    assert alone.low < other.high  # apart, they could not be told from each other
    assert difference(base, better, FIVE).mean == pytest.approx(-found.mean)


def test_no_difference_is_none():
    rng = random.Random(4)
    values = [float(rng.random() < 0.5) for _ in FIVE]
    others = rng.sample(values, len(values))
    assert difference(values, values, FIVE).p == 1
    assert difference(values, others, FIVE).p > 0.05


def test_what_makes_no_pairs_is_refused():
    with pytest.raises(InputError, match="2 values and 1 others"):
        difference([1, 0], [1], ["c", "c"])
    with pytest.raises(InputError, match="at least one"):
        interval([], [])
