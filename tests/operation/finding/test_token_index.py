"""Late interaction over rows, against the formula written out, and what is held between comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from memos.operation.finding.vector_index import TokenIndex, compare_tokens

DIM = 8
CHANCE = np.random.default_rng(5)


def tokens(count: int) -> np.ndarray:
    return CHANCE.integers(-127, 128, (count, DIM)).astype(np.int8)


class Stored:
    """Tokens of rows, which notes what was read."""

    def __init__(self, *counts: int) -> None:
        self.rows = {row: tokens(count) for row, count in enumerate(counts) if count}
        self.read: list[int] = []

    def __call__(self, rows: Sequence[int]) -> dict[int, np.ndarray]:
        self.read += rows
        return {row: self.rows[row] for row in rows if row in self.rows}


def by_formula(query: np.ndarray, of: np.ndarray | None) -> float:
    if of is None:
        return 0.0
    a, b = query.astype(float), of.astype(float)
    cosines = (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    return float(np.maximum(cosines.max(1), 0).mean())


def test_the_score_is_the_mean_of_each_query_tokens_nearest_cosine() -> None:
    stored, query = Stored(3, 1, 0, 7), tokens(4)
    expected = [by_formula(query, stored.rows.get(row)) for row in (3, 2, 0, 1)]
    index = TokenIndex(DIM, stored)
    for _ in range(2):  # read, then held
        assert compare_tokens(query, index.of([3, 2, 0, 1])) == pytest.approx(expected, abs=1e-6)


def test_a_query_without_tokens_is_near_nothing() -> None:
    assert compare_tokens(tokens(0), TokenIndex(DIM, Stored(2)).of([0])).tolist() == [0]


def test_rows_are_read_once_until_they_change() -> None:
    stored, query = Stored(2, 2), tokens(3)
    index = TokenIndex(DIM, stored)
    compare_tokens(query, index.of([0, 1]))
    compare_tokens(query, index.of([1, 0]))
    assert stored.read == [0, 1]
    stored.rows[1] = tokens(5)
    index.drop(1)
    assert compare_tokens(query, index.of([0, 1]))[1] == pytest.approx(by_formula(query, stored.rows[1]), abs=1e-6)
    assert stored.read == [0, 1, 1]


def test_no_more_is_held_than_there_is_room_for_and_the_latest_stay() -> None:
    stored, query = Stored(1, 1, 1, 1), tokens(1)
    two = 2 * (DIM + 4)  # each with its length
    index = TokenIndex(DIM, stored, max_bytes=two)
    compare_tokens(query, index.of([0, 1, 2, 3]))
    compare_tokens(query, index.of([2, 3]))
    assert stored.read == [0, 1, 2, 3]
    compare_tokens(query, index.of([0]))
    compare_tokens(query, index.of([3]))
    assert stored.read == [0, 1, 2, 3, 0]
    compare_tokens(query, index.of([2]))
    assert stored.read == [0, 1, 2, 3, 0, 2]


def test_a_comparison_may_be_larger_than_the_room() -> None:
    stored, query = Stored(*[4] * 9), tokens(2)
    expected = [by_formula(query, stored.rows[row]) for row in range(9)]
    assert compare_tokens(query, TokenIndex(DIM, stored, max_bytes=1).of(range(9))) == pytest.approx(expected, abs=1e-6)
