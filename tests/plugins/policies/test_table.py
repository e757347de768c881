"""Every policy by its name: what it finds first, what it admits, and that it moves nothing it has no rule for."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from memos.config import Config, MemoryOSConfig
from memos.cube import Form, Header, MemCube, Rights, Text, Usage
from memos.errors import InputError
from memos.kernel.access import Staged
from memos.operation.policies.policy import POLICIES, Policy, Segment, Signals

NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)
OTHERS = [name for name in POLICIES.names() if name != "memos"]


def note(name: str, hour: int, used: int | None = None, words: int = 4) -> MemCube:
    """Said and kept `hour` hours after noon; used last so many hours after noon."""
    usage = Usage() if used is None else Usage(recalls=1, last_recalled=NOON + timedelta(hours=used))
    header = Header(created=NOON + timedelta(hours=hour), segment=name)
    text = " ".join([name] * words)
    return MemCube(
        id=name, form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text=text), usage=usage
    )


A, B, C = note("a", 1, used=5), note("b", 2, used=4), note("c", 3)


def need(cube: MemCube) -> int:
    return len(cube.text.split())


def signals(**given: list[float]) -> Signals:
    """Of three candidates; 0 where nothing is given."""
    rows = {f.name: given.get(f.name, [0.0] * 3) for f in fields(Signals)}
    return Signals(**{name: np.array(row, np.float32) for name, row in rows.items()})


def policy(name: str, config: Config) -> Policy:
    return POLICIES.get(name)(config)


def test_what_ships_is_there() -> None:
    shipped = {"memos", "memoryos", "plain-rag", "keywords", "recency", "lru", "full-context"}
    assert shipped <= set(POLICIES.names())


def test_a_name_that_nothing_provides_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(InputError) as found:
        policy("fifo", Config())
    assert "'fifo'" in str(found.value) and all(name in str(found.value) for name in POLICIES.names())


def test_a_policy_is_made_with_its_section_of_the_config() -> None:
    made = policy("memoryos", Config(memoryos=MemoryOSConfig(gamma=3.0)))
    assert made.heat([A], NOON + timedelta(hours=5)) == 1 + 1 + 3


def test_memoryos_alone_finds_by_stages_of_its_own() -> None:
    """With its variants that go without a part."""
    staged = [name for name in POLICIES.names() if isinstance(policy(name, Config()), Staged)]
    assert staged == ["memoryos", *(f"memoryos-{part}" for part in ("chain", "lpm", "mtm", "stm"))]


@pytest.mark.parametrize(
    "name, best",
    [
        ("plain-rag", 0),
        ("memoryos", 0),
        ("keywords", 1),
        ("recency", 2),
        ("full-context", 2),
        ("lru", 1),
    ],
)
def test_each_ranks_by_what_it_looks_at(name: str, best: int) -> None:
    told = signals(near=[0.9, 0.1, 0.2], words=[0.2, 0.9, 0.1], age=[30, 20, 10], idle=[30, 10, 20])
    assert int(np.argmax(policy(name, Config()).score(told))) == best


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_admitted_is_in_canonical_order_and_within_the_budget(name: str) -> None:
    ranked, groups = [(B, 0.9), (A, 0.5)], [Segment(cube.id, (cube,)) for cube in (C, B, A)]
    made = policy(name, Config())

    def admitted(room: int) -> list[str]:
        return [cube.id for group in made.admit(ranked, groups, need, room) for cube in group.cubes]

    every = name == "full-context"
    assert admitted(100) == (["a", "b", "c"] if every else ["a", "b"])
    assert admitted(8) == (["b", "c"] if every else ["a", "b"])  # of all, the oldest is left out
    assert admitted(7) == (["c"] if every else ["b"])  # the best that fits
    assert admitted(3) == []
    assert made.admit([], [], need, 100) == []


@pytest.mark.parametrize("name", OTHERS)
def test_a_memory_that_is_too_long_is_passed_over(name: str) -> None:
    long = note("long", 9, words=50)
    groups = [Segment("", (A, long))]
    admitted = policy(name, Config()).admit([(long, 0.9), (A, 0.5)], groups, need, 10)
    assert [group.cubes for group in admitted] == [(A,)]


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_rule_for_forms_moves_nothing(name: str) -> None:
    made = policy(name, Config())
    assert made.form(1e9, 1e9, {}) is None and not made.cold(0.0)


def test_kv_keeps_its_place_by_last_use_or_by_time() -> None:
    now = NOON + timedelta(hours=6)
    lru, recency = policy("lru", Config()), policy("recency", Config())
    assert sorted([A, B, C], key=lambda cube: -lru.heat([cube], now)) == [A, B, C]  # c, never used, was kept at 3
    assert sorted([A, B, C], key=lambda cube: -recency.heat([cube], now)) == [C, B, A]
    assert lru.heat([A, B], now) == lru.heat([A], now) == 1 / 3601
