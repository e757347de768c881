"""BM25 against its formula written out over plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.operation.finding.columns import at as at_
from memos.operation.finding.columns import unpack
from memos.operation.finding.keyword_index import K1, B, KeywordIndex

WORD = st.sampled_from("abcdef")


def index_of(texts: Sequence[Sequence[str]]) -> KeywordIndex:
    index = KeywordIndex()
    for text in texts:
        index.append(text)
    return index


def by_the_book(texts: Sequence[Sequence[str]], query: Sequence[str]) -> list[float]:
    mean = sum(map(len, texts)) / len(texts)
    found = {w: sum(w in text for text in texts) for w in query}
    idf = {w: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for w, n in found.items()}

    def part(word: str, text: Sequence[str]) -> float:
        count = text.count(word)
        return idf[word] * count / (count + K1 * (1 - B + B * len(text) / (mean or 1)))

    return [sum(part(w, text) for w in set(query) if w in text) / sum(idf.values()) for text in texts]


def scores(index: KeywordIndex, query: Sequence[str], allowed: np.ndarray) -> list[float]:
    lengths = index.lengths.all
    found = index.matches(query, allowed).score(lengths, int(allowed.sum()), float(lengths[allowed].mean()))
    return list(found[allowed])


@given(st.lists(st.lists(WORD, max_size=6), min_size=1, max_size=8), st.lists(WORD, min_size=1, max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_it_is_the_formula_over_what_is_allowed(texts: list[list[str]], query: list[str], data: st.DataObject) -> None:
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    allowed[0] = True
    seen = [text for text, may in zip(texts, allowed, strict=True) if may]
    assert scores(index_of(texts), query, allowed) == pytest.approx(by_the_book(seen, query), abs=1e-6)


def test_rows_of_a_group_are_scored_as_one_text() -> None:
    texts, groups = [["a", "b"], ["c"], ["a"], ["d", "e", "a"]], np.array([0, 0, 1, 1])
    index = index_of(texts)
    matches = index.matches(["a", "c"], np.ones(4, bool))
    share = matches.score(np.array([3, 4], np.float32), 2, 3.5, groups)
    assert share.tolist() == pytest.approx(by_the_book([["a", "b", "c"], ["a", "d", "e", "a"]], ["a", "c"]), abs=1e-6)


def test_a_hidden_row_tells_nothing_by_its_words() -> None:
    """What others have written changes neither the scores nor the counts behind them."""
    mine = [["a", "b"], ["b", "c"]]
    alone = scores(index_of(mine), ["a", "b"], np.ones(2, bool))
    among = index_of([*mine, ["a", "a"], ["a"]])
    assert scores(among, ["a", "b"], np.array([True, True, False, False])) == alone


def test_words_that_nobody_used_match_nothing() -> None:
    matches = index_of([["a"]]).matches(["z"], np.ones(1, bool))
    assert matches.score(np.ones(1, np.float32), 1, 1.0).tolist() == [0]


@given(st.lists(st.lists(WORD, max_size=6), max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_many_rows_at_once_are_as_one_by_one_and_so_is_what_was_packed(
    texts: list[list[str]], data: st.DataObject
) -> None:
    texts = [["a", "b"], *texts]
    at = data.draw(st.integers(0, len(texts)))
    index = index_of(texts[:at])
    index.extend(texts[at:])
    index.extend([])
    everything = np.ones(len(texts), bool)
    expected = scores(index_of(texts), list("abcf"), everything)
    assert scores(index, list("abcf"), everything) == expected
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    kept[0] = True
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    packed = index.packed(np.flatnonzero(kept), place)
    left = [text for text, there in zip(texts, kept, strict=True) if there]
    assert set(unpack(at_("terms", packed))) == {word for text in left for word in text}
    again = KeywordIndex.unpacked(packed)
    again.append(["c", "f", "z"])
    assert scores(again, list("abcfz"), np.ones(len(left) + 1, bool)) == pytest.approx(
        by_the_book([*left, ["c", "f", "z"]], list("abcfz")), abs=1e-6
    )
