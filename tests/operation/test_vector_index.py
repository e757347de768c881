"""Exact search among what is allowed, while vectors come and go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.operation.vector_index import VectorIndex


def axes(*rows: tuple[float, float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


def test_the_best_come_first() -> None:
    index = VectorIndex(2)
    index.add(["far", "near", "middle"], axes((0, 1), (1, 0), (0.6, 0.8)))
    hits = index.search(axes((1, 0))[0], 2)
    assert [id for id, _ in hits] == ["near", "middle"]
    assert [score for _, score in hits] == pytest.approx([1.0, 0.6])


def test_what_is_not_allowed_takes_no_place() -> None:
    index = VectorIndex(2)
    index.add([f"hidden{i}" for i in range(50)], np.repeat(axes((1, 0)), 50, axis=0))
    index.add(["seen", "also"], axes((0.1, 0), (0, 1)))
    assert [id for id, _ in index.search(axes((1, 0))[0], 2, {"seen", "also", "unknown"})] == ["seen", "also"]
    assert index.search(axes((1, 0))[0], 2, set()) == []
    assert len(index.search(axes((1, 0))[0], 99, ["seen", "seen"])) == 1


def test_an_id_added_again_has_its_new_vector_alone() -> None:
    index = VectorIndex(2)
    index.add(["a", "a"], axes((1, 0), (0.5, 0)))
    assert index.search(axes((1, 0))[0], 9) == [("a", 0.5)]
    index.add(["a"], axes((0, 1)))
    assert index.search(axes((1, 0))[0], 9) == [("a", 0.0)]
    assert len(index) == 1


def test_a_removed_id_is_gone_and_may_come_back() -> None:
    index = VectorIndex(2)
    index.add(["a", "b"], axes((1, 0), (0, 1)))
    index.remove(["a", "never there"])
    assert ("a" in index, "b" in index, len(index)) == (False, True, 1)
    index.add(["a"], axes((1, 1)))
    assert [id for id, _ in index.search(axes((1, 0))[0], 9)] == ["a", "b"]


def test_equal_scores_come_by_id() -> None:
    index = VectorIndex(2)
    index.add(["c", "a", "b"], axes((1, 0), (1, 0), (1, 0)))
    assert [id for id, _ in index.search(axes((1, 0))[0], 3)] == ["a", "b", "c"]


def test_an_empty_index_finds_nothing() -> None:
    index = VectorIndex(2)
    index.add([], axes().reshape(0, 2))
    assert index.search(axes((1, 0))[0], 3) == []


def test_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2\), not \(1, 3\)"):
        VectorIndex(2).add(["a"], np.zeros((1, 3)))


IDS = st.sampled_from("abcdefgh")
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.lists(IDS, max_size=4), st.integers(0, 999)))


@given(STEPS, st.sets(IDS), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_it_agrees_with_a_dict_of_vectors(steps: list[tuple[str, list[str], int]], allowed: set[str], k: int) -> None:
    index, plain = VectorIndex(3), dict[str, np.ndarray]()
    for what, ids, seed in steps:
        if what == "add":
            vectors = np.random.default_rng(seed).normal(size=(len(ids), 3)).astype(np.float32)
            index.add(ids, vectors)
            plain |= dict(zip(ids, vectors, strict=True))
        else:
            index.remove(ids)
            plain = {id: vector for id, vector in plain.items() if id not in ids}
    query = np.array([0.3, -1.0, 0.5], dtype=np.float32)
    expected = sorted((-float(plain[id] @ query), id) for id in allowed if id in plain)[:k]
    hits = index.search(query, k, allowed)
    assert len(index) == len(plain)
    assert [score for _, score in hits] == pytest.approx([-score for score, _ in expected], abs=1e-5)
    assert {id for id, _ in hits} <= allowed & plain.keys()
