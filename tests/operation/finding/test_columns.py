"""Texts and lists as arrays, and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memos.operation.finding.columns import at, beneath, pack, split, unpack


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_of_any_script_come_back(texts: list[str]) -> None:
    packed = pack(texts)
    assert unpack(packed) == texts
    assert packed["utf8"].tobytes() == "".join(texts).encode()


@given(st.lists(st.lists(st.integers(-9, 9))))
def test_lists_come_back(lists: list[list[int]]) -> None:
    flat = np.array([value for values in lists for value in values], np.int64)
    assert split(flat, np.array([len(values) for values in lists], np.int64)) == lists


def test_parts_are_found_beneath_their_name() -> None:
    one, other = pack(["a"]), pack(["b"])
    parts = {"rows": np.arange(2), **beneath("name", one), **beneath("names", other)}
    assert (unpack(at("name", parts)), unpack(at("names", parts))) == (["a"], ["b"])
