"""The cases of supersession: many, varied, and told to a real kernel."""

from __future__ import annotations

from collections import Counter

import pytest

from memos.bench.developer.supersession import Case, bench_supersession, cases
from memos.bench.tables import failures_table, rows_table


class Shown:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def __call__(self, what: str, done: int, of: int) -> None:
        self.seen.append((what, done, of))


def test_the_cases_are_of_five_kinds_in_two_languages_and_no_two_are_the_same() -> None:
    every = cases()
    assert len(every) >= 300 and len({(case.said, case.then) for case in every}) == len(every)
    kinds = Counter((case.language, case.kind) for case in every)
    assert len(kinds) == 10 and min(kinds.values()) >= 30
    assert all(out < len(case.said) for case in every for out in case.out)
    assert 0.3 < sum(case.held_out for case in every) / len(every) < 0.4


@pytest.mark.slow
def test_the_targets_are_met() -> None:
    show = Shown()
    report = bench_supersession(show, cases()[::4])
    everything = report["rows"][0]
    assert everything["precision"] >= 0.97 and everything["recall"] >= 0.9 and everything["lost"] == 0
    assert everything["wanted"] >= 25 and show.seen[-1] == ("cases", everything["cases"], everything["cases"])


def test_a_wrong_expectation_shows_as_a_failure() -> None:
    wrong = Case(
        "en", "change", ("I live in Oslo.", "I play the harp."), "I moved to Rome.", frozenset({1}), (1, 2, 3), False
    )
    report = bench_supersession(Shown(), [wrong]) | {"bench": "supersession", "device": "cpu"}
    assert report["rows"][0]["precision"] == 0 and report["rows"][0]["recall"] == 0
    [failure] = report["failures"]
    assert (failure["wanted"], failure["out"], failure["lost"]) == ([2], [1], [])
    assert rows_table(report).row_count == len(report["rows"]) and failures_table(report).row_count == 1
