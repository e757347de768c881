"""What a request sees under its budgets, and what moves when: real cubes and policy, a clock of our own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from memos.config import FidelityConfig, LimitConfig, RetrievalConfig, SchedulerConfig
from memos.cube import BY_HAND, Blob, Form, Header, MemCube, Rights, Source, State, Text, Usage
from memos.errors import EmptyMemory
from memos.operation.choosing.cost_model import Ways
from memos.operation.choosing.mem_scheduler import Admission, MemScheduler, Route, Via, composable
from memos.operation.choosing.moves import Move, MovePlanner, budgets
from memos.operation.policies.memos import MemosPolicy
from memos.operation.policies.policy import Segment, Signals

DAY = datetime(2025, 3, 1, tzinfo=timezone.utc)
NOW = DAY + timedelta(days=100)
MU = 1e7  # seconds
DERIVED = (Form.ACTIVATION, Form.PARAMETRIC)


def scheduler(**config: Any) -> MemScheduler:
    settings = SchedulerConfig(mu_s=MU, **config)
    return MemScheduler(settings, MemosPolicy(settings))


def planner(**config: Any) -> MovePlanner:
    made = scheduler(**config)
    return MovePlanner(made.config, made.policy)


def note(
    name: str, day: int = 0, *, segment: str = "Ada", recalls: int = 0, ago: float = 0, version: int = 1
) -> MemCube:
    """A memory of 4 words; recalled last `ago` seconds before NOW."""
    used = Usage(recalls=recalls, last_recalled=NOW - timedelta(seconds=ago)) if recalls else Usage()
    return MemCube(
        id=name,
        version=version,
        form=Form.PLAINTEXT,
        rights=Rights(owner="ada"),
        header=Header(created=DAY + timedelta(days=day), segment=segment),
        payload=Text(text=f"{name} says four words"[:40]),
        usage=used,
    )


def made_of(
    form: Form, *cubes: MemCube, size: int = 100, state: State = State.ACTIVATED, name: str = "", version: int = 0
) -> MemCube:
    """A derived cube; `version` pins its first source at another version than it has."""
    sources = [Source(id=c.id, version=c.version) for c in cubes]
    if version:
        sources[0] = Source(id=cubes[0].id, version=version)
    return MemCube(
        id=name or f"{form}-of-{'-'.join(c.id for c in cubes)}",
        form=form,
        state=state,
        rights=Rights(owner="ada"),
        header=Header(created=NOW, segment=cubes[0].header.segment),
        payload=Blob(sha256="0" * 64, bytes=size, fingerprint="host"),
        sources=tuple(sources),
    )


def words(text: str) -> int:
    return len(text.split())


def in_order(*cubes: MemCube) -> tuple[MemCube, ...]:
    return tuple(sorted(cubes, key=lambda cube: cube.order))


def admit(
    hits: Sequence[MemCube],
    groups: Sequence[Segment],
    derived: Sequence[MemCube] = (),
    via: Via = "auto",
    route: Route | None = None,
    **config: Any,
) -> Admission:
    scored = [(cube, 0.9 - n / 100) for n, cube in enumerate(hits)]
    return scheduler(**config).admit(scored, (), groups, derived, words, via, route)


A, B, C = note("a", 1), note("b", 2), note("c", 3)
GROUP = Segment("Ada", (A, B, C))
OTHER = Segment("Bob", (note("d", 1, segment="Bob"), note("e", 2, segment="Bob")))


# heat


@pytest.mark.parametrize(
    "recalls, seconds, weights, heat",
    [
        ([0], 0, {}, 0.0),  # never recalled: cold
        ([1], 0, {}, 3.0),  # 1 visit + 1 memory + recency
        ([3], 0, {}, 5.0),
        ([4, 2, 0], 0, {}, 8.0),  # visits of the most recalled, and 3 memories
        ([4, 2, 0], MU, {}, 8.0 / math.e),
        ([4, 2, 0], 2 * MU, {}, 8.0 / math.e**2),
        ([4], -3600, {}, 6.0),  # a clock that was put back makes nothing hotter
        ([4, 2, 0], 0, {"alpha": 2.0, "beta": 0.5, "gamma": 0.0}, 9.5),
        ([4, 2, 0], MU, {"alpha": 0.0, "beta": 0.0}, 1 / math.e),
    ],
)
def test_heat_is_visits_and_size_and_recency(
    recalls: list[int], seconds: float, weights: dict[str, float], heat: float
) -> None:
    cubes = [note(f"n{i}", i, recalls=n, ago=seconds) for i, n in enumerate(recalls)]
    assert scheduler(**weights).policy.heat(cubes, NOW) == pytest.approx(heat)


def test_the_last_recall_of_any_of_them_counts() -> None:
    cubes = [note("a", recalls=2, ago=MU), note("b", recalls=1, ago=0)]
    assert scheduler().policy.heat(cubes, NOW) == 5.0


# ranking


def test_the_best_come_first_and_too_weak_ones_not_at_all() -> None:
    ranked = scheduler(min_score=0.2).policy.rank([(A, 0.3), (B, 0.5), (C, 0.1)])
    assert [(c.id, score) for c, score in ranked] == [("b", 0.5), ("a", 0.3)]


def test_of_two_as_near_the_earlier_comes_first() -> None:
    assert [c.id for c, _ in scheduler().policy.rank([(C, 0.5), (A, 0.5), (B, 0.5)])] == ["a", "b", "c"]


def test_each_signal_counts_by_its_weight() -> None:
    names = [f.name for f in fields(Signals)]
    weights = RetrievalConfig(
        near=9,
        tokens=10,
        words=2,
        around=3,
        thread=4,
        speaker=5,
        states=13,
        linked=11,
        answers=12,
        question=6,
        length=7,
        other=8,
        standing=14,
        seen=15,
    )
    policy = MemosPolicy(SchedulerConfig(about_bonus=8), weights)
    each = np.eye(len(names), dtype=np.float32)  # for each signal, a candidate that has just that
    scores = policy.score(Signals(**dict(zip(names, each, strict=True))))
    expected = dict(
        near=9, tokens=10, words=2, around=3, thread=4, speaker=5, subject=8, states=13, linked=11, answers=12
    )
    expected |= dict(question=-6, length=7, other=-8, standing=14, seen=15, age=0, idle=0, ids=0)
    assert dict(zip(names, scores.tolist(), strict=True)) == expected


# topic groups


def test_a_topic_group_is_in_the_order_it_was_said_and_cut_where_it_is_long() -> None:
    cubes = [note(f"n{day}", day) for day in range(9)]
    groups = scheduler(segment_tokens=16).segments([*reversed(cubes), note("x", segment="Bob")], words)
    assert [(s.key, [c.id for c in s.cubes]) for s in groups] == [
        ("Ada", ["n0", "n1", "n2", "n3"]),
        ("Ada", ["n4", "n5", "n6", "n7"]),
        ("Ada", ["n8"]),
        ("Bob", ["x"]),
    ]
    assert scheduler().segments([], words) == []


def test_a_memory_longer_than_a_group_is_one_by_itself() -> None:
    long = note("long", 2).model_copy(update={"payload": Text(text="word " * 40)})
    groups = scheduler(segment_tokens=16).segments([A, long, C], words)
    assert [[c.id for c in s.cubes] for s in groups] == [["a"], ["long"], ["c"]]


# what a request sees


@pytest.mark.parametrize("room, seen", [(768, "abc"), (16, "abc")])
def test_the_whole_topic_group_of_the_best_memory_is_admitted_in_order(room: int, seen: str) -> None:
    admitted = admit([B], [OTHER, GROUP], prompt_tokens=room)
    assert admitted == Admission(cubes=GROUP.cubes)
    assert admitted.form is Form.PLAINTEXT


@pytest.mark.parametrize("room, count", [(16, 4), (19, 4), (20, 5), (23, 5), (24, 6), (100, 9)])
def test_no_more_is_admitted_than_the_budget_has_room_for(room: int, count: int) -> None:
    cubes = tuple(note(f"n{day}", day) for day in range(9))  # 4 tokens each
    admitted = admit([cubes[5]], [Segment("Ada", cubes)], prompt_tokens=room).cubes
    assert len(admitted) == count and cubes[5] in admitted  # the best of them always
    assert list(admitted) == sorted(admitted, key=lambda c: c.order)


def test_of_several_groups_those_are_admitted_that_are_worth_most_together() -> None:
    long = Segment("Ada", tuple(note(f"long{n}") for n in range(5)))  # 4 tokens each
    short, other = (Segment(name, (note(name, segment=name),)) for name in ("Bob", "Cy"))
    hits = [(long.cubes[0], 0.9), (short.cubes[0], 0.8), (other.cubes[0], 0.7)]
    chosen = scheduler(segments=3, prompt_tokens=20).admit(hits, (), [long, short, other], [], words).cubes
    # they leave room for what was found of the long one, and for three such
    assert chosen == in_order(*short.cubes, *other.cubes, long.cubes[0])
    chosen = scheduler(segments=3, prompt_tokens=28).admit(hits, (), [long, short, other], [], words).cubes
    assert chosen == in_order(*long.cubes, *short.cubes, *other.cubes)


@pytest.mark.parametrize("context, count", [(None, 9), (36, 6), (20, 3)])
def test_memories_leave_a_quarter_of_the_context(context: int | None, count: int) -> None:
    group = Segment("Ada", tuple(note(f"n{day}", day) for day in range(9)))  # 4 tokens each
    hits = [(group.cubes[0], 0.9)]
    assert len(scheduler().admit(hits, (), [group], [], words, context=context).cubes) == count


def test_as_many_groups_are_admitted_as_configured_best_first() -> None:
    hits, groups = [OTHER.cubes[1], A, B], [GROUP, OTHER]
    assert admit(hits, groups, segments=1).cubes == OTHER.cubes
    assert admit(hits, groups).cubes == in_order(*OTHER.cubes, *GROUP.cubes)
    assert admit([A, B, C, *OTHER.cubes], groups, segments=2, top_k=3).cubes == GROUP.cubes  # ranked fourth: too late


@pytest.mark.parametrize("beside, both", [(0.7, False), (0.6, True), (0.0, True)])
def test_a_group_is_admitted_beside_the_best_if_it_is_nearly_as_good(beside: float, both: bool) -> None:
    """Where one memory states what is asked for, others only distract."""
    hits = [(OTHER.cubes[0], 2.0), (A, 1.3)]
    seen = scheduler(beside=beside).admit(hits, (), [OTHER, GROUP], (), words).cubes
    assert seen == in_order(*OTHER.cubes, *(GROUP.cubes if both else ()))


def test_nothing_is_admitted_where_nothing_is_near() -> None:
    assert scheduler().admit([(A, 0.1)], (), [GROUP], (), words) == Admission()
    assert admit([], [GROUP]).form is None
    assert admit([A], [GROUP], via="none") == Admission()


# KV


KV_OF_ALL = made_of(Form.ACTIVATION, A, B, C)


@pytest.mark.parametrize(
    "kv, usable",
    [
        (KV_OF_ALL, True),
        (made_of(Form.ACTIVATION, A, B), True),
        (made_of(Form.ACTIVATION, A), True),
        (made_of(Form.ACTIVATION, B), False),
        (made_of(Form.ACTIVATION, B, C), False),
        (made_of(Form.ACTIVATION, A, C), False),
        (made_of(Form.ACTIVATION, B, A, C), False),
        (made_of(Form.ACTIVATION, A, B, C, OTHER.cubes[0]), False),
        (made_of(Form.ACTIVATION, A, B, version=2), False),
        (made_of(Form.ACTIVATION, A, B, state=State.ARCHIVED), False),
        (made_of(Form.ACTIVATION, *OTHER.cubes), False),
        (made_of(Form.PARAMETRIC, A), False),
    ],
    ids=lambda value: value.id if isinstance(value, MemCube) else "",
)
def test_kv_is_usable_only_if_it_is_of_exactly_the_first_memories(kv: MemCube, usable: bool) -> None:
    seen = admit([A], [GROUP, OTHER], [kv])
    assert seen.activations == ((kv,) if usable else ())
    assert seen.cubes == GROUP.cubes  # those behind the KV come as text
    if usable:
        assert admit([A], [GROUP], [kv], "activation").activations == (kv,)
    else:
        with pytest.raises(EmptyMemory, match=r"no activation memory stands for Ada; promote them first"):
            admit([A], [GROUP], [kv], "activation")


def test_the_kv_of_most_memories_is_taken() -> None:
    shorter = [made_of(Form.ACTIVATION, A), made_of(Form.ACTIVATION, A, B)]
    for derived in (shorter, shorter[::-1]):
        assert admit([A], [GROUP], derived).activations == (shorter[1],)


def test_what_lies_in_kv_takes_no_room() -> None:
    cubes = tuple(note(f"n{day}", day) for day in range(9))
    group, kv = Segment("Ada", cubes), made_of(Form.ACTIVATION, *cubes[:6])
    assert len(admit([cubes[0]], [group], prompt_tokens=16).cubes) == 4
    assert len(admit([cubes[0]], [group], [kv], prompt_tokens=16).cubes) == 9  # 6 in KV, 3 as text
    assert len(admit([cubes[0]], [group], [made_of(Form.ACTIVATION, *cubes[:2])], prompt_tokens=16).cubes) == 6


# adapters


@pytest.mark.parametrize(
    "adapter, stands",
    [
        (made_of(Form.PARAMETRIC, A, B, C), True),
        (made_of(Form.PARAMETRIC, *OTHER.cubes, C, B, A), True),  # in any order, among others
        (made_of(Form.PARAMETRIC, A, B), False),
        (made_of(Form.PARAMETRIC, A, B, C, version=2), False),
        (made_of(Form.PARAMETRIC, A, B, C, state=State.ARCHIVED), False),
        (made_of(Form.PARAMETRIC, *OTHER.cubes), False),
    ],
    ids=lambda value: value.id if isinstance(value, MemCube) else "",
)
def test_an_adapter_stands_for_a_group_that_it_knows_all_of(adapter: MemCube, stands: bool) -> None:
    seen = admit([A], [GROUP], [KV_OF_ALL, adapter])
    if stands:
        assert seen == Admission(adapters=(adapter,), internal=GROUP.cubes)
        assert seen.form is Form.PARAMETRIC
        assert admit([A], [GROUP], [KV_OF_ALL, adapter], "parametric") == seen
    else:
        assert (seen.adapters, seen.activations, seen.form) == ((), (KV_OF_ALL,), Form.ACTIVATION)
        with pytest.raises(EmptyMemory, match="no parametric memory stands for Ada; promote them first"):
            admit([A], [GROUP], [KV_OF_ALL, adapter], "parametric")


def test_a_form_that_is_asked_for_is_the_one_that_is_used() -> None:
    derived = [KV_OF_ALL, made_of(Form.PARAMETRIC, A, B, C)]
    assert admit([A], [GROUP], derived, "plaintext") == Admission(cubes=GROUP.cubes)
    assert admit([A], [GROUP], derived, "activation") == Admission(cubes=GROUP.cubes, activations=(KV_OF_ALL,))


def test_a_group_that_the_adapter_does_not_know_comes_as_text() -> None:
    adapter = made_of(Form.PARAMETRIC, A, B, C)
    seen = admit([A, *OTHER.cubes], [GROUP, OTHER], [adapter], segments=2)
    assert seen == Admission(cubes=OTHER.cubes, adapters=(adapter,), internal=GROUP.cubes)


def test_the_route_decides_which_adapter_knows() -> None:
    """Retrieval brings both groups up; what the best one has as text stays in sight, whichever adapter answers."""
    mine, other = made_of(Form.PARAMETRIC, A, B, C), made_of(Form.PARAMETRIC, *OTHER.cubes)
    hits = [A, *OTHER.cubes]
    asked: list[tuple[Sequence[MemCube], bool]] = []

    def route(knowing: Sequence[MemCube]) -> Route:
        def choose(adapters: Sequence[MemCube], at_least_one: bool) -> Sequence[MemCube]:
            asked.append((adapters, at_least_one))
            return knowing

        return choose

    one = admit(hits, [GROUP, OTHER], [mine, other], route=route([mine]))
    assert (one.adapters, one.internal, one.cubes) == ((mine,), GROUP.cubes, OTHER.cubes)
    seen = admit(hits, [GROUP, OTHER], [mine, other], route=route([other]))
    assert (seen.adapters, seen.internal, seen.cubes) == ((other,), OTHER.cubes, GROUP.cubes)
    assert admit(hits, [GROUP, OTHER], [mine, other], route=route([])).cubes == in_order(*GROUP.cubes, *OTHER.cubes)
    admit(hits, [GROUP, OTHER], [mine, other], "parametric", route=route([mine]))
    assert [(list(adapters), forced) for adapters, forced in asked] == [
        *[([mine, other], False)] * 3,
        ([mine, other], True),
    ]


@pytest.mark.parametrize(
    "about, via, candidates",
    [
        ((), "auto", ["Ada", "Bob"]),  # "who …?" may be asked of all
        (("Bob",), "auto", ["Bob"]),
        (("ada",), "auto", ["Ada"]),
        (("Ad",), "auto", None),  # within another name
        (("Cid",), "auto", None),  # nobody speaks of him: no adapter is asked, and text answers
        (("Cid",), "parametric", ["Ada", "Bob"]),  # an adapter was asked for
    ],
)
def test_adapters_are_asked_about_whom_their_memories_name(
    about: tuple[str, ...], via: Via, candidates: list[str] | None
) -> None:
    by_name = {"Ada": made_of(Form.PARAMETRIC, A, B, C), "Bob": made_of(Form.PARAMETRIC, *OTHER.cubes)}
    asked: list[Sequence[MemCube]] = []

    def route(adapters: Sequence[MemCube], at_least_one: bool) -> Sequence[MemCube]:
        asked.append(adapters)
        return adapters

    scored = [(cube, 0.9 - n / 100) for n, cube in enumerate((A, *OTHER.cubes))]
    seen = scheduler().admit(scored, about, [GROUP, OTHER], list(by_name.values()), words, via, route)
    assert [list(adapters) for adapters in asked] == ([] if candidates is None else [[by_name[n] for n in candidates]])
    assert bool(seen.adapters) == (candidates is not None)


def test_trained_kv_stands_alone() -> None:
    """Beside KV of another group, that one is used, as nothing can be put behind trained KV."""

    def with_blob(cube: MemCube, id: str, **changes: Any) -> MemCube:
        assert cube.blob
        return cube.model_copy(update={"id": id, "payload": cube.blob.model_copy(update=changes)})

    exact, other = with_blob(KV_OF_ALL, "exact"), made_of(Form.ACTIVATION, *OTHER.cubes)
    trained = with_blob(KV_OF_ALL, "trained", codec="trained")
    other_trained = with_blob(other, "other", codec="trained")
    hits = [A, *OTHER.cubes]

    def used(*kvs: MemCube) -> set[str]:
        return {kv.id for kv in admit(hits, [GROUP, OTHER], kvs, segments=2).activations}

    assert used(exact, other) == {"exact", other.id}
    assert used(trained, other) == {other.id}
    assert used(trained) == {"trained"}
    assert len(used(trained, other_trained)) == 1


def test_only_adapters_that_were_judged_together_are_active_together() -> None:
    first, second, third = (
        made_of(Form.PARAMETRIC, cube).model_copy(update={"id": f"adapter{n}"}) for n, cube in enumerate((A, B, C))
    )

    def beside(cube: MemCube, sha256: str, *others: str) -> MemCube:
        assert cube.blob
        return cube.model_copy(update={"payload": cube.blob.model_copy(update={"sha256": sha256, "beside": others})})

    a, b, c = beside(first, "a"), beside(second, "b", "a"), beside(third, "c", "a")
    assert composable([b, a, c], 3) == (a, b)  # c was not judged with b
    assert composable([c, a, b], 3) == (a, c)
    assert composable([b, a], 1) == (b,)
    assert composable([], 3) == ()


@pytest.mark.parametrize("via", DERIVED)
def test_a_form_is_not_forced_upon_an_empty_memory(via: Via) -> None:
    with pytest.raises(EmptyMemory, match=f"no {via} memory"):
        admit([], [], [], via)


# what moves


def group(*cubes: MemCube) -> Segment:
    return Segment(cubes[0].header.segment, cubes)


def told(moves: Sequence[Move]) -> list[str]:
    return [f"to {m.to}" if m.to else f"give up {m.cube.id}" for m in moves if m.to or m.cube]


def plan(groups: Sequence[Segment], derived: Sequence[MemCube] = (), now: datetime = NOW, **config: Any) -> list[str]:
    return told(planner(**config).plan(groups, derived, now))


@pytest.mark.parametrize(
    "recalls, quiet_s, moves",
    [
        (0, 86_400, []),
        (2, 86_400, []),
        (3, 86_400, ["to activation"]),  # heat 5
        (9, 86_400, ["to activation"]),
        (10, 86_400, ["to parametric"]),  # heat 12
        (10, 86_399, ["to activation"]),  # hot, not stable yet
    ],
)
def test_what_is_hot_is_promoted_and_what_is_hot_and_stable_becomes_an_adapter(
    recalls: int, quiet_s: float, moves: list[str]
) -> None:
    cube = note("a", recalls=recalls)
    said = cube.header.model_copy(update={"created": NOW - timedelta(seconds=quiet_s)})
    assert plan([group(cube.model_copy(update={"header": said}))]) == moves


def test_an_edit_makes_a_group_unstable() -> None:
    cube = note("a", recalls=20)
    assert plan([group(cube)]) == ["to parametric"]
    edited = cube.header.model_copy(update={"changed": NOW})
    assert plan([group(cube.model_copy(update={"header": edited, "version": 2}))]) == ["to activation"]


def test_what_has_its_form_stays() -> None:
    warm, hot = note("a", recalls=5), note("b", recalls=20, segment="Bob")
    derived = [made_of(Form.ACTIVATION, warm), made_of(Form.PARAMETRIC, hot), made_of(Form.ACTIVATION, hot)]
    assert plan([group(warm), group(hot)], derived) == []


def test_what_grew_is_promoted_whole_and_then_the_part_is_given_up() -> None:
    first, later = note("a", 1, recalls=5), note("b", 2)
    part, whole = made_of(Form.ACTIVATION, first, name="part"), made_of(Form.ACTIVATION, first, later, name="whole")
    assert plan([group(first, later)], [part]) == ["to activation"]
    assert plan([group(first, later)], [part, whole]) == ["give up part"]


def test_what_somebody_asked_for_is_not_given_up_for_being_cold() -> None:
    cold = note("a")
    [kv] = [made_of(Form.ACTIVATION, cold)]
    by_hand = kv.model_copy(update={"header": kv.header.model_copy(update={"origin": BY_HAND})})
    assert plan([group(cold)], [by_hand]) == []
    assert len(plan([group(cold)], [kv])) == 1


@pytest.mark.parametrize("form", DERIVED)
def test_what_is_stale_or_cold_is_given_up(form: Form) -> None:
    edited, cold, gone = note("a", recalls=0, version=2), note("b", recalls=0, segment="Bob"), note("c", recalls=9)
    stale = made_of(form, edited, version=1, state=State.ARCHIVED, name="stale")
    derived = [stale, made_of(form, cold, name="cold"), made_of(form, gone, name="orphan")]
    moves = planner(activate_heat=99, parametric_heat=99).plan([group(edited), group(cold)], derived, NOW)
    assert sorted(told(moves)) == ["give up cold", "give up orphan", "give up stale"]
    assert {m.why for m in moves} == {"its sources changed", "heat 0.0"}


@pytest.mark.parametrize(
    "form, recalls, fresh, moves",
    [
        (Form.PARAMETRIC, 20, False, []),  # the next adapter of the group is an edit of it
        (Form.PARAMETRIC, 20, True, ["give up stale"]),
        (Form.PARAMETRIC, 0, False, ["give up stale"]),
        (Form.ACTIVATION, 20, False, ["give up stale"]),
    ],
)
def test_a_stale_adapter_waits_to_be_edited_as_long_as_its_group_is_in_use(
    form: Form, recalls: int, fresh: bool, moves: list[str]
) -> None:
    edited, other = note("a", recalls=recalls, version=2), note("b", recalls=recalls)
    stale = made_of(form, edited, other, version=1, state=State.ARCHIVED, name="stale")
    derived = [stale, *([made_of(Form.PARAMETRIC, edited, other)] if fresh else [])]
    planned = planner(stable_s=1e9, activate_heat=98, parametric_heat=99).plan([group(edited, other)], derived, NOW)
    assert told(planned) == moves


def test_what_was_given_up_waits_to_be_taken_back() -> None:
    cold = note("a")
    assert plan([group(cold)], [made_of(Form.ACTIVATION, cold, state=State.ARCHIVED)]) == []


# a group of one memory, recalled r times just now, has heat r + 2
@pytest.mark.parametrize(
    "recalls, without, held",
    [(0, [], ["give up kv"]), (1, [], []), (2, [], []), (3, ["to activation"], []), (4, ["to activation"], [])],
)
def test_between_the_two_thresholds_nothing_moves(recalls: int, without: list[str], held: list[str]) -> None:
    cube = note("a", recalls=recalls)
    config = {"cool_heat": 3.0, "activate_heat": 5.0, "parametric_heat": 99.0}
    assert plan([group(cube)], **config) == without
    assert plan([group(cube)], [made_of(Form.ACTIVATION, cube, name="kv")], **config) == held


def test_a_group_that_cools_moves_up_once_and_down_once() -> None:
    """Heat 6 at first, then e-fold by e-fold; a plan each tenth of it, carried out at once."""
    cube, derived, moves = note("a", recalls=4), list[MemCube](), list[tuple[int, str]]()
    for tenth in range(30):
        for move in plan([group(cube)], derived, NOW + timedelta(seconds=tenth * MU / 10), stable_s=1e9):
            moves.append((tenth, move))
            derived = [made_of(Form.ACTIVATION, cube, name="kv")] if move == "to activation" else []
    # 6 / e^0.1n falls below 3 at n = 7
    assert moves == [(0, "to activation"), (7, "give up kv")]


def test_heat_that_swings_between_the_thresholds_does_not_flap() -> None:
    derived, moves = list[MemCube](), list[str]()
    for recalls in (3, 2, 1, 2, 3, 2, 1, 3, 1, 2):  # heat 5, 4, 3, ...
        cube = note("a", recalls=recalls)
        for move in plan([group(cube)], derived):
            moves.append(move)
            derived = [made_of(Form.ACTIVATION, cube, name="kv")] if move == "to activation" else []
    assert moves == ["to activation"]


# budgets


FULL = {"high_water": 1.0, "low_water": 1.0}  # up to the last byte


def crowd(form: Form, *sizes: int) -> tuple[list[Segment], list[MemCube]]:
    """Groups with a derived cube each, the first the hottest."""
    cubes = [note(f"n{i}", i, segment=f"s{i}", recalls=9 - i) for i in range(len(sizes))]
    return [group(c) for c in cubes], [made_of(form, c, size=s, name=c.id) for c, s in zip(cubes, sizes, strict=True)]


@pytest.mark.parametrize(
    "sizes, budget, given_up",
    [
        ((100, 100, 100), 300, []),
        ((100, 100, 100), 299, ["n2"]),
        ((100, 100, 100), 100, ["n1", "n2"]),
        ((100, 100, 100), 0, ["n0", "n1", "n2"]),
        ((100, 300, 100), 250, ["n1"]),  # what fits beside the hotter ones stays
    ],
)
def test_the_coldest_kv_is_given_up_over_its_budget(sizes: tuple[int, ...], budget: int, given_up: list[str]) -> None:
    groups, derived = crowd(Form.ACTIVATION, *sizes)
    for order in (derived, derived[::-1]):
        moves = plan(groups, order, disk_kv_bytes=budget, stable_s=1e9, **FULL)
        assert sorted(moves) == [f"give up {name}" for name in given_up]


@pytest.mark.parametrize("budget, given_up", [(3, []), (1, ["n1", "n2"]), (0, ["n0", "n1", "n2"])])
def test_the_coldest_adapters_are_given_up_over_their_budget(budget: int, given_up: list[str]) -> None:
    groups, derived = crowd(Form.PARAMETRIC, 10**9, 1, 1)
    moves = plan(groups, derived, adapters=budget, disk_kv_bytes=0, **FULL)
    assert moves == [f"give up {name}" for name in given_up]


def test_nothing_is_given_up_below_the_high_mark_and_then_down_to_the_low_one() -> None:
    groups, derived = crowd(Form.ACTIVATION, *[100] * 8)
    assert plan(groups, derived, disk_kv_bytes=1000, high_water=0.8, low_water=0.5, stable_s=1e9) == []
    moves = plan(groups, derived, disk_kv_bytes=999, high_water=0.8, low_water=0.5, stable_s=1e9)
    assert moves == ["give up n4", "give up n5", "give up n6", "give up n7"]


@pytest.mark.parametrize(
    ("held", "limit", "share"),
    [
        ({"ann": 10.0}, LimitConfig(), 100),
        ({"ann": 10.0, "bob": 30.0}, LimitConfig(), 70),  # what others leave
        ({"ann": 10.0, "bob": 90.0}, LimitConfig(), 50),  # but no less than a fair share
        ({"ann": 10.0, "bob": 90.0, "cy": 20.0}, LimitConfig(), 40),
        ({"bob": 90.0}, LimitConfig(kv_bytes=30), 30),
    ],
)
def test_a_user_may_take_what_others_leave_and_a_fair_share(
    held: dict[str, float], limit: LimitConfig, share: float
) -> None:
    both = {Form.ACTIVATION: held, Form.PARAMETRIC: {}}
    found = budgets(SchedulerConfig(disk_kv_bytes=100, adapters=4), "ann", both, limit)
    assert found == {Form.ACTIVATION: share, Form.PARAMETRIC: 4}


def test_the_two_budgets_are_apart() -> None:
    groups, derived = crowd(Form.ACTIVATION, 100, 100)
    adapters = [d.model_copy(update={"form": Form.PARAMETRIC, "id": f"{d.id}-lora"}) for d in derived]
    moves = plan(groups, [*derived, *adapters], disk_kv_bytes=100, adapters=1, **FULL)
    assert moves == ["give up n1", "give up n1-lora"]


@pytest.mark.parametrize("config", [{"disk_kv_bytes": 0}, {"disk_kv_bytes": 99, "stable_s": 1e9}])
def test_what_has_no_room_is_not_promoted_again(config: dict[str, float]) -> None:
    """Else it would be built with one tick and given up with the next."""
    hot = note("a", recalls=5)
    before = made_of(Form.ACTIVATION, hot, size=100, state=State.ARCHIVED)
    assert plan([group(hot)], [before], **config) == []
    assert plan([group(hot)], [before], disk_kv_bytes=100, **FULL) == ["to activation"]


def test_what_is_given_up_comes_before_what_is_promoted() -> None:
    groups, derived = crowd(Form.ACTIVATION, 100)
    cold = note("cold", segment="z")
    new = note("new", segment="y", recalls=5)
    moves = plan(
        [group(new), *groups, group(cold)], [*derived, made_of(Form.ACTIVATION, cold, name="kv")], stable_s=1e9
    )
    assert moves == ["give up kv", "to activation"]


# how several caches are put together


def level(name: str, agreement: float, ms: float, cubes: int = 8, first: int = 4, share: float = 0.1) -> dict[str, Any]:
    """A row of a card."""
    row = {"level": name, "first_tokens": first, "share": share, "n_cubes": cubes}
    return row | {"decision_agreement": agreement, "ttft_ms": ms}


CARD = {
    "levels": [
        level("L0", 1.0, 30),
        level("L1", 0.97, 5, cubes=2),
        level("L1", 0.80, 10),
        level("L3", 0.97, 20, cubes=2),
        level("L3", 0.96, 18),
        level("L4", 1.0, 25),
    ]
}


@pytest.mark.parametrize(
    "wanted, card, chosen",
    [
        ({}, None, "L0"),
        ({"level": "L2"}, None, "L2"),
        ({}, CARD, "L3"),  # L1 is faster, but agrees too seldom with eight cubes
        ({"agreement": 0.75}, CARD, "L1"),
        ({"agreement": 0.99}, CARD, "L0"),  # L4 is no KV at all
        ({"level": "L4"}, CARD, None),
        ({"level": "L1"}, CARD, "L0"),  # switched off
        ({"level": "L1", "first_tokens": 2, "share": 0.3}, CARD, "L0"),  # which L1 does not look at
        ({"level": "L3"}, CARD, "L3"),
        ({"level": "L2"}, CARD, "L2"),  # not measured
        ({}, {"levels": [level("L1", 0.5, 1)]}, "L0"),
    ],
)
def test_the_fastest_level_that_the_card_allows_is_chosen(
    wanted: dict[str, Any], card: dict[str, Any] | None, chosen: str | None
) -> None:
    assert (
        next(
            (f.level for f in Ways(SchedulerConfig(), scheduler().policy).levels(FidelityConfig(**wanted), card)), None
        )
        == chosen
    )


def test_the_caches_of_several_groups_come_oldest_first_and_before_the_text() -> None:
    older, newer = made_of(Form.ACTIVATION, *OTHER.cubes, name="1"), made_of(Form.ACTIVATION, A, B, name="2")
    seen = admit([A, *OTHER.cubes], [GROUP, OTHER], [newer, older], segments=2)
    assert seen.activations == (older, newer)
    assert seen.cubes == (*OTHER.cubes, A, B, C) and seen.as_text == (C,)


# what is always seen, and what is kept apart


def tagged(name: str, *tags: str, day: int = 0, segment: str = "Ada") -> MemCube:
    cube = note(name, day, segment=segment)
    return cube.model_copy(update={"header": cube.header.model_copy(update={"tags": tags})})


def chosen(always: Sequence[MemCube], hits: Sequence[MemCube], cubes: Sequence[MemCube], **config: Any) -> list[str]:
    made = scheduler(**config)
    scored = [(cube, 0.9 - n / 100) for n, cube in enumerate(hits)]
    admitted = made.admit(made.compatible(scored, always), (), made.segments(cubes, words), [], words, always=always)
    return [c.id for c in admitted.cubes]


def test_what_is_always_seen_is_seen_whatever_its_group_takes() -> None:
    rule = tagged("rule", "always")
    others = [note(f"n{day}", day) for day in range(1, 5)]
    seen = chosen([rule], others, [rule, *others], prompt_tokens=16)
    assert seen[0] == "rule" and len(seen) == 4  # of 4 tokens each
    assert chosen([rule], [], [], prompt_tokens=16) == ["rule"]


def test_what_is_always_seen_does_not_clash_with_itself() -> None:
    rule, other = tagged("rule", "always", "apart:x"), tagged("other", "apart:x", day=1)
    plain = note("plain", 2)
    assert chosen([rule], [rule, other, plain], [rule, other, plain]) == ["rule", "plain"]


def test_of_those_kept_apart_the_nearest_is_seen_in_any_group() -> None:
    one, two = tagged("one", "apart:x", segment="A"), tagged("two", "apart:x", segment="B")
    free = note("free", 3, segment="B")
    assert chosen([], [two, one, free], [one, two, free], segments=3) == ["two", "free"]
    assert chosen([], [one, two, free], [one, two, free], segments=3) == ["one", "free"]


def test_kv_of_another_model_keeps_no_group_from_getting_its_own() -> None:
    hot = note("a", recalls=5)
    other = made_of(Form.ACTIVATION, hot)
    groups = [group(hot)]
    assert told(planner().plan(groups, [other], NOW)) == []
    assert told(planner().plan(groups, [other], NOW, usable=lambda derived: False)) == ["to activation"]
