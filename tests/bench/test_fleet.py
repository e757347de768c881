"""`memos simulate fleet`: queues whose answers are known, plans that follow from costs, and a measured run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos.bench.fleet.costs import SHIPPED, CallCost, FleetCosts, read_costs
from memos.bench.fleet.plan import Demand, Offer, plan
from memos.bench.fleet.queues import Load, Machines, simulate
from memos.errors import InputError
from memos.interface.doors.cli.app import app

pytest.importorskip("simpy")
CALLS = 2000


def costs(**given: Any) -> FleetCosts:
    """Of chats that take 20 ms of a process and no database."""
    cost = {"own_s": 0.02, "shared_s": 0, "later_s": 0, "database_s": 0, "waits_s": 0, "turn": 0}
    return FleetCosts(model="none", calls={"chat": CallCost(**{**cost, **given})})


def rate(given: FleetCosts, clients: int, machines: Machines) -> float:
    return simulate(given, Load({"chat": 1}, clients=clients), machines, CALLS, 0).calls_a_second


def test_one_client_waits_for_nobody() -> None:
    outcome = simulate(costs(waits_s=0.03), Load({"chat": 1}, clients=1), Machines(1, 2), CALLS, 0)
    assert outcome.percentile(0.5) == pytest.approx(50, rel=0.01) == outcome.percentile(0.95)
    assert outcome.calls_a_second == pytest.approx(20, rel=0.01)


@pytest.mark.parametrize(
    "machines, given, expected",
    [
        (Machines(1, 4), {}, 50),  # a process runs one thread at a time
        (Machines(2, 4), {}, 100),
        (Machines(4, 2), {}, 100),  # four processes share two cores
        (Machines(4, 1.5), {}, 75),  # and one and a half, as others use the machine too
        (Machines(4, 4), {"turn": 0.5}, 100),  # one call has the turn to write at a time
        (Machines(4, 4), {"database_s": 0.02}, 100),  # the database takes half of the cores
        (Machines(4, 4, database_cores=1), {"database_s": 0.02}, 50),
        (Machines(1, 4), {"later_s": 0.02}, 25),  # what is done after the reply takes the process too
        (Machines(1, 4), {"waits_s": 0.02}, 50),  # who waits takes nothing
    ],
)
def test_what_is_short_bounds_the_rate(machines: Machines, given: dict[str, float], expected: float) -> None:
    assert rate(costs(**given), 16, machines) == pytest.approx(expected, rel=0.05)


def test_calls_at_once_share_what_can_be_shared() -> None:
    given = costs(own_s=0.01, shared_s=0.08)
    assert rate(given, 1, Machines(1, 1)) == pytest.approx(1 / 0.09, rel=0.02)
    assert rate(given, 8, Machines(1, 1)) == pytest.approx(1 / 0.02, rel=0.1)


def test_an_open_queue_waits_as_the_formula_has_it() -> None:
    """M/D/1 by Pollaczek and Khinchine: at a load of .5 one waits half a service in the mean, at .8 two."""
    for load, waits in ((0.5, 0.5), (0.8, 2.0)):
        outcome = simulate(costs(own_s=0.005), Load({"chat": 1}, rate=load / 0.005), Machines(1, 1), 40_000, 1)
        mean = sum(outcome.ms["chat"]) / len(outcome.ms["chat"])
        assert mean == pytest.approx(5 * (1 + waits), rel=0.08)


def test_the_same_seed_gives_the_same_figures() -> None:
    given = costs(spread=(0.5, 1.0, 1.5))
    first, again = (simulate(given, Load({"chat": 1}, rate=30), Machines(1, 1), CALLS, 3) for _ in range(2))
    assert first.ms == again.ms


# -- plans ------------------------------------------------------------------------------------------------------------


def test_memory_bounds_the_users_of_a_vault() -> None:
    demand = Demand(calls={"chat": 1}, exchanges_a_day=10, days=365, memories=2)
    made = plan(100_000, demand, Offer(gib=64), costs(), 0)
    assert made["limited_by"] == "memory" and made["vaults"] == pytest.approx(100_000 * 87.6e6 / 68e9, rel=0.05)
    assert made["gib_of_a_process"] <= 64
    assert made["servers"] == made["vaults"] * 2 and made["cost_of_a_user"] == made["cost_a_month"] / 100_000
    assert plan(100_000, demand, Offer(gib=128), costs(), 0)["vaults"] < made["vaults"]


def test_the_turn_to_write_bounds_them_where_little_is_kept() -> None:
    demand = Demand(calls={"chat": 1}, exchanges_a_day=1000, days=1, memories=1)
    made = plan(100_000, demand, Offer(), costs(turn=1.0), 0)
    assert made["limited_by"] == "the turn to write"
    assert made["users_of_a_vault"] * 1000 * 3 / 86_400 * 0.02 == pytest.approx(0.7, rel=0.05)


def test_as_many_processes_as_keep_the_promise() -> None:
    demand = Demand(calls={"chat": 1}, exchanges_a_day=1000, days=1, memories=1, p95_ms=100)
    made = plan(10_000, demand, Offer(gib=256, spare=0), costs(), 0)  # 347 chats a second, 6.9 processes' worth
    assert 8 <= made["servers"] <= 12 and made["chat_p95_ms"] <= 100 and made["vaults"] == 1
    with pytest.raises(InputError, match="waits for nobody takes up to 20 ms"):
        plan(10_000, demand.model_copy(update={"p95_ms": 5}), Offer(), costs(), 0)


def test_costs_that_ship_give_a_plan_and_others_may_take_their_place(tmp_path: Path) -> None:
    report = tmp_path / "fleet.json"
    done = CliRunner().invoke(app, ["simulate", "fleet", "--users", "1000", "--days", "30", "--json", str(report)])
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text("utf-8"))
    [made] = found["plans"]
    assert made["users"] == 1000 and made["machines"] >= 1 and "cost a month" in done.output
    assert read_costs(report) == read_costs(SHIPPED)
    assert all(cost.own_s > 0 for cost in read_costs(SHIPPED).calls.values())


def test_a_file_without_costs_is_named(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"costs": {"model": "x", "calls": {"chat": {"own_s": -1}}}}')
    done = CliRunner().invoke(app, ["simulate", "fleet", "--costs", str(file)])
    assert done.exit_code == 1 and "other.json has no costs of calls" in done.stderr and "--measure" in done.stderr


@pytest.mark.slow
def test_processes_that_run_here_are_predicted() -> None:
    pytest.importorskip("pgserver")
    from memos.bench.fleet.measure import measure

    figures = measure({"add": 1, "search": 1, "chat": 1}, [1, 2], 4, 3.0, 0, lambda *_: None)
    assert [row["processes"] for row in figures["rows"]] == [1, 2]
    for row in figures["rows"]:
        assert row["calls"] > 20 and row["refused"] == 0 and row["cores"] > 0
        assert 0.3 < row["predicted_calls_a_second"] / row["calls_a_second"] < 3, row
    assert set(FleetCosts.model_validate(figures["costs"]).calls) == {"add", "search", "chat"}
