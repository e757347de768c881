"""Policies on traces that were counted by hand, and what must hold on any trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from memos.bench.dialogues import Conversation, Question
from memos.bench.simulate import COSTS, POLICIES, QUESTION, _heat, best, replay, simulate
from memos.bench.traces import GENERATED, Access, generate, of_dialogues, record, recorded, trace
from memos.config import SchedulerConfig
from memos.errors import InputError
from memos.ops import Add

DEMAND = [name for name, made in POLICIES.items() if made and name != "memos"]


def asked(groups: str, tokens: int = 1) -> list[Access]:
    return [Access(60.0 * n, "ada", group, tokens) for n, group in enumerate(groups)]


def drawn(seed: int, requests: int = 400, sizes: Sequence[int] = (1,)) -> list[Access]:
    draw = Random(seed)
    size = {f"group {g}": draw.choice(sizes) for g in range(40)}
    groups = draw.choices(list(size), [1 / (1 + n) for n in range(40)], k=requests)
    return [Access(30.0 * n, f"user {draw.randrange(3)}", group, size[group]) for n, group in enumerate(groups)]


def hits(name: str, accesses: Sequence[Access], room: int) -> int:
    made = POLICIES[name]
    return (replay(accesses, made(), room, 0, COSTS) if made else best(accesses, room, COSTS)).requests_hit


@pytest.mark.parametrize(
    "policy, groups, room, expected",
    [
        ("belady", "abcac", 2, 2),  # b is not used again and leaves for c
        ("belady", "abcd", 2, 0),
        ("belady", "abababab", 1, 3),  # one of them stays; the other is read again each time
        ("lru", "abababab", 1, 0),
        ("lru", "abcac", 2, 1),  # c pushes a out, a pushes b out, c is there
        ("lru", "abacab", 2, 2),  # a, a; b was pushed out by c
        ("lfu", "aabcbc", 1, 1),  # a was used twice: b and c, once each, do not push it out until they have caught up
        ("lfu", "aabcabca", 2, 3),  # a stays; of b and c, used as often, the one that came last
    ],
)
def test_hits_by_hand(policy: str, groups: str, room: int, expected: int) -> None:
    assert hits(policy, asked(groups), room) == expected


def test_heat_is_memoryos_sum() -> None:
    mu = SchedulerConfig().mu_s
    assert _heat(3, 0.0, 128, mu) == pytest.approx(3 + 2 + math.exp(-1))


def brute(groups: str, room: int) -> int:
    """The most hits that any choice of what to keep can have, by trying all."""
    states = {frozenset[str](): 0}
    for group in groups:
        later: dict[frozenset[str], int] = {}
        for held, found in states.items():
            every = held | {group}
            score = found + (group in held)
            for kept in [every] if len(every) <= room else [every - {away} for away in every]:
                later[kept] = max(score, later.get(kept, 0))
        states = later
    return max(states.values())


@pytest.mark.parametrize("seed", range(10))
def test_belady_is_the_best_of_all_choices(seed: int) -> None:
    groups = "".join(Random(seed).choices("abcde", k=14))
    for room in (1, 2, 3):
        assert hits("belady", asked(groups), room) == brute(groups, room)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(1,), (3, 40, 100)], ids=["equal", "different"])
def test_no_policy_on_demand_is_above_belady(seed: int, sizes: tuple[int, ...]) -> None:
    accesses = drawn(seed, sizes=sizes)
    room = 10 * max(sizes)
    bound = best(accesses, room, COSTS).hit_rate
    for name in DEMAND:
        made = POLICIES[name]
        assert made and 0 < replay(accesses, made(), room, 0, COSTS).hit_rate <= bound


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "belady"])
def test_the_budget_holds_after_every_request(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from memos.bench import simulate as module

    seen = list[int]()
    put = module._Memory.put

    def watched(memory: module._Memory, *args: object) -> list[str]:
        out = put(memory, *args)  # type: ignore[arg-type]
        seen.append(sum(memory.held.values()))
        assert seen[-1] + memory._left == 500
        return out

    monkeypatch.setattr(module._Memory, "put", watched)
    made = POLICIES[name]
    assert made
    figures = replay(drawn(3, sizes=(3, 40, 100, 501)), made(), 500, 100, COSTS)
    assert 0 < max(seen) <= 500
    assert figures.tokens_prefetched <= 100 * figures.requests


def test_what_is_brought_was_made_before_and_is_counted() -> None:
    days = [Access(86_400.0 * day + 60 * n, "ada", g, 1) for day in range(30) for n, g in enumerate("abcdefgh")]
    made = POLICIES["memos"]
    assert made
    with_it, without = (replay(days, made(), 3, prefetch, COSTS) for prefetch in (2, 0))
    assert without.prefetched == without.prefetch_hits == 0
    assert 0 < with_it.prefetch_hits <= with_it.prefetched
    assert with_it.requests_hit > without.requests_hit + 50
    assert with_it.requests_hit <= len(days) - 8  # the first use of each is never a hit


def test_seconds_are_the_cost_models() -> None:
    made = POLICIES["lru"]
    assert made
    figures = replay(asked("aa", 100), made(), 100, 0, COSTS)
    text, over = COSTS.forward(100 + QUESTION), COSTS.forward(QUESTION, 100)
    assert (figures.seconds, figures.as_text) == pytest.approx((text + over, 2 * text))
    assert figures.tokens_prefilled == 100


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_trace_is_the_same_for_the_same_seed(name: str) -> None:
    accesses = generate(name, 3, 500)
    assert accesses == generate(name, 3, 500) != generate(name, 4, 500)
    assert len(accesses) == 500 and all(32 <= a.tokens <= 256 for a in accesses)
    assert [a.at for a in accesses] == sorted(a.at for a in accesses)
    tokens = {a.group: a.tokens for a in accesses}
    assert all(tokens[a.group] == a.tokens for a in accesses)


def test_a_simulation_is_the_same_twice(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    record(generate("zipf", 0, 800), file)
    args = ([str(file)], ["memos", "belady"], [0.1, 0.3], 4.0, 0)
    shown = list[tuple[str, int, int]]()
    first = simulate(*args, None, lambda *what: shown.append(what))
    assert first == simulate(*args, tmp_path / "again", lambda *what: None)
    assert recorded(tmp_path / "again/mine.jsonl") == recorded(file)
    assert [(r["trace"], r["policy"], r["share"]) for r in first["rows"]] == [
        ("mine", policy, share) for share in (0.1, 0.3) for policy in ("memos", "belady")
    ]
    assert all(r["of_belady"] == 1.0 for r in first["rows"] if r["policy"] == "belady")
    assert shown[-1][1:] == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATED)
def test_memos_is_near_belady_and_above_the_others(name: str) -> None:
    rows = simulate([name], list(POLICIES), [0.1], 4.0, 0, None, lambda *what: None)["rows"]
    rate = {row["policy"]: row["hit_rate"] for row in rows}
    assert rate["memos"] >= 0.9 * rate["belady"]
    assert rate["memos"] > max(rate[other] for other in ("memos-demand", "lru", "lfu", "memoryos"))


@pytest.mark.parametrize(
    "line, told",
    [
        ('{"at": 1, "user": "a", "group": "g"}', r":2 is not an access"),
        ('{"at": 1, "user": "a", "group": "g", "tokens": 0}', r":2 .*from 1 on"),
        ('{"at": 1, "user": "a", "group": "g", "tokens": true}', r":2"),
        ('{"at": "noon", "user": "a", "group": "g", "tokens": 3}', r":2 .*noon"),
        ('{"at": NaN, "user": "a", "group": "g", "tokens": 3}', r":2"),
        ('{"at": true, "user": "a", "group": "g", "tokens": 3}', r":2"),
        ("not JSON", r":2 .*each line is"),
        ('{"at": -5, "user": "a", "group": "g", "tokens": 3}', r":2 is earlier"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text('{"at": 0, "user": "a", "group": "g", "tokens": 3}\n' + line + "\n")
    with pytest.raises(InputError, match=f"trace.jsonl{told}"):
        recorded(file)


def test_times_may_be_iso(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text('{"at": "1970-01-01T00:01:00", "user": "a", "group": "g", "tokens": 3}\n')
    assert recorded(file) == [Access(60.0, "a", "g", 3)]


@pytest.mark.parametrize("name", ["ziph", "trace.txt", "absent.jsonl"])
def test_a_trace_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(InputError, match=name):
        trace(name, 0)


def test_a_policy_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"fifo.*lru"):
        simulate(["zipf"], ["fifo"], [0.1], 4.0, 0, None, lambda *what: None)


def test_a_dialogue_is_what_its_questions_use_in_the_order_of_time() -> None:
    from datetime import datetime, timedelta, timezone

    first = datetime(2023, 1, 1, tzinfo=timezone.utc)
    said = {
        name: Add(text="x" * letters, speaker="Ada", said=first + timedelta(days=session), thread=f"session_{session}")
        for name, session, letters in (("D0:1", 0, 800), ("D0:2", 0, 400), ("D1:1", 1, 40))
    }
    questions = (
        Question("late", ("D1:1", "D0:1"), "multi-hop"),
        Question("early", ("D0:2",), "single-hop"),
        Question("also early", ("D0:1",), "single-hop"),
    )
    zero = first.timestamp()
    assert of_dialogues([Conversation("c", said, questions)]) == [
        Access(zero, "c", "c session_0, part 1", 200),
        Access(zero + 60, "c", "c session_0, part 2", 100),
        Access(zero + 86_400, "c", "c session_0, part 1", 200),
        Access(zero + 86_400, "c", "c session_1, part 1", 10),
    ]


def test_the_command_writes_figures_and_a_picture(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from memos.interface.doors.cli.app import app

    file, out, picture = (tmp_path / name for name in ("mine.jsonl", "figures/out.json", "figures/out.png"))
    record(generate("tenants", 0, 300), file)
    asked_for = ["--policy", "lru", "--policy", "belady", "--share", "0.2", "--json", str(out), "--plot", str(picture)]
    done = CliRunner().invoke(app, ["simulate", str(file), *asked_for])
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["rows"]
    assert [(r["trace"], r["policy"], r["share"]) for r in rows] == [("mine", "lru", 0.2), ("mine", "belady", 0.2)]
    assert f"{rows[0]['hit_rate']:.3f}" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
