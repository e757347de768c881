"""What a later fact replaces, and what stays beside it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from memos.cube import Fact, Form, Header, MemCube, Rights, Text, new_id
from memos.operation.life.knowledge import facts_out_of_force, is_outdated, modes_against, replaces

DAY = datetime(2025, 1, 1, tzinfo=timezone.utc)


def fact(obj: str, mode: Any = "is", *, sole: bool = True, subject: str = "Tom", relation: str = "city") -> Fact:
    return Fact(subject=subject, relation=relation, object=obj, mode=mode, sole=sole)


def said(day: int, *facts: Fact, more: bool = False) -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        rights=Rights(owner="ada"),
        header=Header(created=DAY, said=DAY + timedelta(days=day)),
        payload=Text(text="...", facts=facts, more=more),
    )


@pytest.mark.parametrize(
    "later, earlier",
    [
        (fact("Rome"), fact("Oslo")),
        (fact("Rome"), fact("Oslo", "now")),
        (fact("Rome", "now", sole=False), fact("Oslo", sole=False)),
        (fact("Rome", subject="TOM"), fact("Oslo")),
        (fact("Oslo", "ended"), fact("Oslo")),
        (fact("", "ended"), fact("Oslo")),
        (fact("cat", "ended", relation="pet"), fact("grey cat", "also", relation="pet", sole=False)),
        (fact("cats", "ended", relation="pet"), fact("cat", relation="pet", sole=False)),
        (fact("猫", "ended", relation="pet"), fact("灰猫", relation="pet", sole=False)),
        (fact("tennis", "ended", relation=""), fact("tennis", relation="sport", sole=False)),
        (fact("fish", sole=False), fact("fish", "ended", sole=False)),
    ],
)
def test_a_later_fact_replaces_an_earlier_one(later: Fact, earlier: Fact) -> None:
    assert replaces(later, earlier)
    assert earlier.mode in modes_against(later) and later.mode in modes_against(earlier)


@pytest.mark.parametrize(
    "later, earlier",
    [
        (fact("Oslo"), fact("Oslo")),
        (fact("oslo", "now"), fact("Oslo")),
        (fact("night nurse"), fact("nurse")),
        (fact("北京"), fact("北京朝阳区")),
        (fact("Rome", subject="Mira"), fact("Oslo")),
        (fact("Rome", relation="trip"), fact("Oslo")),
        (fact("Rome", sole=False), fact("Oslo")),
        (fact("Rome"), fact("Oslo", sole=False)),
        (fact("Rome", "also"), fact("Oslo")),
        (fact("Rome", "was"), fact("Oslo")),
        (fact("Oslo", "was"), fact("Oslo")),
        (fact("Rome", "will"), fact("Oslo")),
        (fact("Rome", "now"), fact("Oslo", "was")),
        (fact("Rome", "now"), fact("Oslo", "also")),
        (fact("Rome", "ended"), fact("Oslo")),
        (fact("Oslo", "ended"), fact("Oslo", "will")),
        (fact("Acme"), fact("", "ended")),
        (fact("dog", "ended", relation="pet"), fact("dog walker", relation="pet")),
    ],
)
def test_in_doubt_both_stay(later: Fact, earlier: Fact) -> None:
    assert not replaces(later, earlier)


def test_only_what_was_said_later_replaces_and_the_first_that_did_is_named() -> None:
    oslo, rome, lima = said(1, fact("Oslo")), said(2, fact("Rome")), said(3, fact("Lima"))
    assert facts_out_of_force(oslo, (lima, oslo, rome)) == {fact("Oslo"): rome.id}
    assert facts_out_of_force(lima, (oslo, rome, lima)) == {}


def test_a_statement_is_outdated_when_all_that_it_says_is() -> None:
    home, work = fact("Oslo"), fact("Acme", relation="employer")
    assert is_outdated(Text(text="...", facts=(home, work)), {home, work})
    assert not is_outdated(Text(text="...", facts=(home, work)), {home})
    assert not is_outdated(Text(text="...", facts=(home,), more=True), {home})
    assert not is_outdated(Text(text="..."), set())
