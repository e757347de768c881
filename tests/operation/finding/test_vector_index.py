"""The vector index against plain inner products, exact and through its graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.operation.finding import vector_index
from memos.operation.finding.vector_index import VectorIndex

EXACT, GRAPH = 1e9, 0.0  # milliseconds that comparing one by one may take


def units(rows: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def index_of(vectors: np.ndarray, exact_ms: float = EXACT) -> VectorIndex:
    index = VectorIndex(vectors.shape[1], exact_ms)
    for vector in vectors:
        index.append(vector)
    index.nearest(vectors[0], 1, np.ones(len(vectors), bool))  # sees that a graph is needed
    index.settle()
    return index


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 99), st.data())
@settings(max_examples=60, deadline=None)
def test_the_nearest_allowed_come_first(rows: int, k: int, seed: int, data: st.DataObject) -> None:
    vectors, query = units(rows, seed=seed), units(1, seed=seed + 1)[0]
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    found = index_of(vectors).nearest(query, k, allowed)
    expected = sorted(np.flatnonzero(allowed), key=lambda row: -float(vectors[row] @ query))[:k]
    if len(expected) == k < allowed.sum():
        assert found.tolist() == expected
    else:
        assert set(found.tolist()) == set(expected)  # all of them: nothing to choose


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_graph_finds_nearly_all_that_comparing_each_finds(share: float) -> None:
    vectors, rng = units(6000), np.random.default_rng(1)
    allowed = rng.random(6000) < share
    exact, graph = index_of(vectors), index_of(vectors, GRAPH)
    queries = units(50, seed=2)
    hits = [len(np.intersect1d(exact.nearest(q, 10, allowed), graph.nearest(q, 10, allowed))) for q in queries]
    assert sum(hits) / 500 >= 0.97
    assert all(allowed[graph.nearest(q, 10, allowed)].all() for q in queries)


def test_a_row_that_got_another_vector_is_found_by_it() -> None:
    vectors = units(3000)
    index, everything = index_of(vectors, GRAPH), np.ones(3000, bool)
    assert index.nearest(vectors[7], 1, everything).tolist() == [7]
    index.replace(7, -vectors[7])
    index.append(units(1, seed=9)[0])
    everything = np.ones(3001, bool)
    assert 7 not in index.nearest(vectors[7], 5, everything)
    assert index.nearest(-vectors[7], 1, everything).tolist() == [7]
    assert index.nearest(units(1, seed=9)[0], 1, everything).tolist() == [3000]


def test_few_rows_in_clusters_are_all_found() -> None:
    """A graph leads past them: what is allowed is compared one by one where it is a small share."""
    vectors = units(6000)
    allowed = np.argsort(vectors @ vectors[0]) < 0
    allowed[np.argsort(-(vectors @ vectors[0]))[1000:1300]] = True
    exact, graph = index_of(vectors), index_of(vectors, GRAPH)
    for query in units(10, seed=3):
        assert graph.nearest(query, 100, allowed).tolist() == exact.nearest(query, 100, allowed).tolist()


def test_rows_that_got_many_vectors_do_not_crowd_out_others() -> None:
    vectors = units(3000)
    index, exact, everything = index_of(vectors, GRAPH), index_of(vectors), np.ones(3000, bool)
    for seed in range(20):
        for row, vector in enumerate(units(100, seed=seed)):
            index.replace(row, vector)
            exact.replace(row, vector)
    found = [index.nearest(q, 50, everything) for q in units(10, seed=5)]
    wanted = [exact.nearest(q, 50, everything) for q in units(10, seed=5)]
    assert sum(len(np.intersect1d(a, b)) for a, b in zip(found, wanted, strict=True)) >= 0.95 * 500


def test_without_memory_for_a_graph_each_row_is_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(vector_index._faiss(), "IndexHNSWFlat", full)
    vectors = units(3000)
    index = index_of(vectors, GRAPH)
    assert index.nearest(vectors[7], 1, np.ones(3000, bool)).tolist() == [7]
    assert index.nearest(vectors[8], 1, np.ones(3000, bool)).tolist() == [8]
    assert caplog.text.count("compared one by one") == 1


def test_nothing_allowed_is_nothing_found() -> None:
    assert index_of(units(5)).nearest(units(1)[0], 3, np.zeros(5, bool)).tolist() == []


def test_until_the_graph_is_there_each_row_is_compared_and_none_is_lost() -> None:
    vectors, late = units(6000), units(2, seed=5)
    index, everything = VectorIndex(16, GRAPH), np.ones(6001, bool)
    for vector in vectors:
        index.append(vector)
    assert index.nearest(vectors[9], 1, everything[:6000]).tolist() == [9]  # begins to build
    index.append(late[0])
    index.replace(3, late[1])
    index.settle()
    assert index.nearest(late[0], 1, everything).tolist() == [6000]
    assert index.nearest(late[1], 1, everything).tolist() == [3]
    assert 3 not in index.nearest(vectors[3], 3, everything)
