"""What each way to put memories in front of the model is predicted to take, and which one is chosen."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from memos.config import FidelityConfig, SchedulerConfig
from memos.cube import Blob, Form, Header, MemCube, Rights, Source, Text, Usage
from memos.errors import NoRoom
from memos.operation.choosing.cost_model import Costs, Lying, ResidentKV, Situation, Way, Ways
from memos.operation.choosing.mem_scheduler import Admission
from memos.operation.choosing.moves import MovePlanner
from memos.operation.policies.memos import MemosPolicy
from memos.operation.policies.policy import Segment

NOW = datetime(2025, 3, 1, tzinfo=timezone.utc)
L0, L1, L2, L3 = (FidelityConfig(level=level) for level in ("L0", "L1", "L2", "L3"))  # type: ignore[arg-type]
# a millisecond a token and 10 to begin; a token that lies before costs a hundredth; the disk brings 2 tokens a ms
COSTS = Costs(
    read=((1, 0.011), (100, 0.110), (200, 0.210)),
    past=1e-5,
    move=1e-5,
    renew=1e-5,
    look=1e-7,
    bytes=100,
    layers=1,
    load={"disk raw": (0.001, 5e-4), "cache raw": (0.001, 1e-5)},
)


def ways(**config: Any) -> Ways:
    settings = SchedulerConfig(**config)
    return Ways(settings, MemosPolicy(settings))


def cube(id: str, **changes: Any) -> MemCube:
    fields = {"form": Form.PLAINTEXT, "payload": Text(text=id)} | changes
    return MemCube(id=id, rights=Rights(owner="ada"), header=Header(created=NOW), **fields)


def admitted(*tokens: int) -> tuple[Admission, dict[str, Lying]]:
    """KV of one memory each, in the page cache."""
    texts = [cube(f"{n}") for n in tokens]
    kvs = [
        cube(
            f"kv{n}",
            form=Form.ACTIVATION,
            payload=Blob(sha256=f"{n}", bytes=1, tokens=n, fingerprint="host"),
            sources=(Source(id=f"{n}", version=1),),
        )
        for n in tokens
    ]
    return Admission(tuple(texts), tuple(kvs)), {f"kv{n}": Lying(n, "cache") for n in tokens}


def choose(
    *tokens: int, levels: tuple[FidelityConfig, ...] = (L0,), place: str = "cache", there: int = 0, question: int = 10,
    forced: bool = False, costs: Costs = COSTS, **config: Any,
) -> tuple[int, str | None]:  # fmt: skip
    """How many caches are used, and at which level."""
    admission, lying = admitted(*tokens)
    lying = {name: Lying(kv.tokens, place) for name, kv in lying.items()}
    situation = Situation(costs, levels, lying, there, lambda text: int(text), 8, question)
    used = ways(**config).choose(admission, forced, situation)
    assert used.way and used.activations == admission.activations[: used.way.kvs]
    return len(used.activations), used.way.level.level if used.way.level else None


# predictions


@pytest.mark.parametrize(
    "tokens, past, seconds",
    [(1, 0, 0.011), (50, 0, 0.060), (150, 0, 0.160), (400, 0, 0.410), (100, 1000, 0.120)],
)
def test_reading_takes_what_was_measured_and_what_lies_before_it(tokens: int, past: int, seconds: float) -> None:
    assert COSTS.forward(tokens, past) == pytest.approx(seconds)


def test_attention_grows_with_the_square_beyond_what_was_measured() -> None:
    steep = COSTS.model_copy(update={"attend": 1e-6})
    assert steep.forward(2200) == pytest.approx(0.210 + 2000 * (1e-3 + 1e-6 * 2100 / 2))


def test_layers_that_come_while_others_are_read_hide_their_way() -> None:
    many = COSTS.model_copy(update={"layers": 10})
    alone = COSTS.forward(10, 200)
    way = COSTS.bring(Lying(200, "disk"))  # 101 ms, longer than reading
    work = COSTS.bring(Lying(200, "cache"))  # which the processor does itself
    assert COSTS.first_token([Lying(200, "disk")], 0, L0, 0, 10) == pytest.approx(way + alone)
    assert many.first_token([Lying(200, "disk")], 0, L0, 0, 10) == pytest.approx(way)
    assert many.first_token([Lying(200, "cache")], 0, L0, 0, 10) == pytest.approx(work + alone)
    gpu = many.model_copy(update={"gpu": True})
    assert gpu.first_token([Lying(200, "cache")], 0, L0, 0, 10) == pytest.approx(work / 10 + alone)


def test_a_machine_that_has_grown_slower_is_followed() -> None:
    costs, way = COSTS, Way(1, L0, seconds=0.2, bringing=0.1)
    for _ in range(30):
        took = 0.1 + 3 * 0.1  # reading takes three times as long, bringing as long as before
        way = Way(1, L0, seconds=0.1 + costs.pace * 0.1, bringing=0.1)
        costs = costs.paced(way, took)
    assert costs.pace == pytest.approx(3, rel=1e-2)
    assert costs.forward(100, 50) == pytest.approx(costs.pace * COSTS.forward(100, 50))
    assert costs.bring(Lying(100, "disk")) == COSTS.bring(Lying(100, "disk"))
    assert 1 < COSTS.paced(way, 1e6).pace < 4  # one request that something has disturbed


def test_a_slow_moment_makes_kv_worth_its_way() -> None:
    slow_disk = COSTS.model_copy(update={"load": {"disk raw": (0.25, 0.0)}})
    assert choose(200, place="disk", costs=slow_disk)[0] == 0
    assert choose(200, place="disk", costs=slow_disk.model_copy(update={"pace": 2.0}))[0] == 1


# choices


@pytest.mark.parametrize(
    "tokens, place, used",
    [((200,), "cache", 1), ((200,), "host", 1), ((200,), "disk", 1), ((2,), "disk", 1), ((2, 2), "host", 2)],
)
def test_kv_is_used_where_it_is_faster_than_text(tokens: tuple[int, ...], place: str, used: int) -> None:
    assert choose(*tokens, place=place)[0] == used


def test_a_slow_disk_is_not_waited_for() -> None:
    slow = COSTS.model_copy(update={"load": {"disk raw": (0.5, 1e-3)}})
    assert choose(200, place="disk", costs=slow) == (0, None)
    assert choose(200, place="disk", costs=slow, forced=True) == (1, "L0")


@pytest.mark.parametrize(
    "levels, there, chosen",
    [
        ((L0,), 0, (2, "L0")),  # the second is read as it would be as text, and is there the next time
        ((L0, L1), 0, (2, "L1")),
        ((L0, L1), 2, (2, "L0")),  # it is there: nothing has to be moved
        ((L2, L3), 0, (2, "L2")),
        ((L0, L3), 0, (2, "L3")),
        ((), 0, (0, None)),
    ],
)
def test_of_the_levels_that_are_allowed_the_fastest_is_taken(
    levels: tuple[FidelityConfig, ...], there: int, chosen: tuple[int, str | None]
) -> None:
    assert choose(200, 201, levels=levels, there=there) == chosen


def test_kv_that_has_no_room_in_memory_is_not_used_or_named() -> None:
    assert choose(200, host_kv_bytes=20_000) == (1, "L0")
    assert choose(200, host_kv_bytes=19_999) == (0, None)
    assert choose(200, 201, levels=(L1,), host_kv_bytes=20_000) == (1, "L1")
    with pytest.raises(NoRoom, match=r"KV of 20,000 bytes does not fit the 19,999 .*raise scheduler.host_kv_bytes"):
        choose(200, host_kv_bytes=19_999, forced=True)
    on_gpu = COSTS.model_copy(update={"gpu": True})
    with pytest.raises(NoRoom, match="scheduler.device_kv_bytes"):
        choose(200, device_kv_bytes=1, forced=True, costs=on_gpu)


def test_kv_is_made_where_it_pays() -> None:
    def pays(recalls: int, **changes: Any) -> bool:
        used = cube("200", usage=Usage(recalls=recalls, last_recalled=NOW))
        costs = COSTS.model_copy(update=changes)
        return ways().pays(Segment("Ada", (used,)), costs, lambda text: int(text))

    assert pays(1) and not pays(0)
    assert not pays(1000, load={"cache raw": (1.0, 0.0)})  # to bring it takes longer than to read the text
    kept = [cube("200", usage=Usage(recalls=9, last_recalled=NOW))]
    groups = [Segment("Ada", tuple(kept))]
    planner = MovePlanner(SchedulerConfig(stable_s=1e9), MemosPolicy(SchedulerConfig(stable_s=1e9)))
    assert [m.to for m in planner.plan(groups, [], NOW)] == [Form.ACTIVATION]
    assert planner.plan(groups, [], NOW, lambda segment: False) == []


# where KV stays


def held(name: str, recalls: int, size: int, tokens: int = 100) -> ResidentKV:
    used = Usage(recalls=recalls, last_recalled=NOW - timedelta(days=1))
    blob = Blob(sha256=name, bytes=1, tokens=tokens, fingerprint="host")
    return ResidentKV(name, cube(name, form=Form.ACTIVATION, payload=blob, usage=used), size, tokens)


def test_what_saves_most_for_its_bytes_stays_nearest() -> None:
    kvs = [held("cold", 1, 100), held("hot", 50, 100), held("warm", 20, 100), held("large", 60, 1000)]
    on_gpu = COSTS.model_copy(update={"gpu": True})
    places = ways(device_kv_bytes=100, host_kv_bytes=150).place(kvs, on_gpu, NOW)
    assert places == {"hot": "device", "warm": "host"}
    assert ways(host_kv_bytes=200).place(kvs, COSTS, NOW) == {"hot": "host", "warm": "host"}
    assert ways(host_kv_bytes=0).place(kvs, COSTS, NOW) == {}
