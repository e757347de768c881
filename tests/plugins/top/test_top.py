"""`memos top` over a real kernel, driven by textual's pilot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from memos.interface.doors.api.memory import Memory

pytest.importorskip("textual", reason="needs textual: `pip install -e '.[top]'`")
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from memos.plugins.top import top
from memos.plugins.top.top import ORDERS, Top


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(vault=tmp_path_factory.mktemp("top") / "vault") as memory:
        said = ["Mira lives in Lisbon.", "Mira works as a florist.", "Tom lives in Oslo."]
        for text in said:
            memory.add(text)
        memory.kernel.ask("Where does Mira live?")
        yield memory


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """textual waits until the process is idle, which one with threads of other tests may never be; see `settled`."""
    monkeypatch.setattr("textual.pilot.wait_for_idle", lambda *_: asyncio.sleep(0.02))


def driven(memory: Memory, steps: Callable[[Top, Pilot[None]], Coroutine[Any, Any, None]]) -> None:
    """Take the steps in a terminal of 120 × 36."""

    async def drive() -> None:
        app = Top(memory, every=60)
        async with app.run_test(size=(120, 36)) as pilot:
            await settled(pilot)
            await steps(app, pilot)

    asyncio.run(drive())


async def settled(pilot: Pilot[None]) -> None:
    """Once nothing is asked of the API any more."""
    for _ in range(3):  # a call that is done asks for another look
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def column(app: Top, at: int) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[at]) for row in range(table.row_count)]


def words(app: Top, where: str) -> str:
    return str(app.query_one(where, Static).render())


def test_it_shows_memories_by_heat_with_budgets_and_counts(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert column(app, 7)[2] == "Tom lives in Oslo.", "the coldest last"
        heat = [float(cell.split()[0]) for cell in column(app, 0)]
        assert heat == sorted(heat, reverse=True) and heat[0] > 0 == heat[2]
        assert "0 B of 8.0 GiB" in words(app, "#budgets") and "0 of 64" in words(app, "#budgets")
        assert "text 3" in words(app, "#counts") and "jobs: none" in words(app, "#counts")

    driven(memory, steps)


def test_of_more_than_it_lists_the_hottest_are_shown_by_one_decision(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("Uma lives in Rome.")
    monkeypatch.setattr(top, "MAX_LISTED", 1)
    before = len(memory.log(limit=1000)["results"])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert "Mira" in column(app, 7)[0] and len(column(app, 7)) == 1
        assert "the hottest 1 of 4" in words(app, "#counts")

    driven(memory, steps)
    assert len(memory.log(limit=1000)["results"]) == before + 1


def test_a_key_makes_kv_and_another_gives_it_up(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("a")
        await settled(pilot)
        assert words(app, "#message").endswith("done")
        assert column(app, 1).count("KV") == 1 and "KV 1" in words(app, "#counts")
        made = column(app, 1).index("KV")
        assert column(app, 2)[made] in ("disk", "host")
        app.query_one(DataTable).move_cursor(row=made)
        await pilot.press("d")
        await settled(pilot)
        assert column(app, 3)[column(app, 1).index("KV")] == "archived"

    driven(memory, steps)


def test_what_another_process_holds_in_memory_is_not_called_disk(memory: Memory) -> None:
    kept = memory.kernel.vault.path
    ids = [row["id"] for row in memory.get_all()["results"][:1]]
    memory.promote(ids, "activation")
    memory.kernel.ask("Where does Mira live?", via="activation")

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        assert column(app, 2)[column(app, 1).index("KV")] == ""
        assert "not known here" in words(app, "#counts") and "none yet" not in words(app, "#counts")
        assert "KV 0" not in words(app, "#counts").split("uses:")[1]

    with Memory(vault=kept) as beside:
        driven(beside, steps)


def test_a_memory_is_frozen_thawed_and_inspected(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("f")
        await settled(pilot)
        assert column(app, 3)[0] == "frozen"
        await pilot.press("f")
        await settled(pilot)
        assert column(app, 3)[0] == "activated"
        await pilot.press("enter")
        await settled(pilot)
        told = str(app.screen.query_one(Static).render())
        assert "Mira" in told and "version 1" in told and "thawed" in told
        await pilot.press("escape")
        assert app.screen is app.screen_stack[0]

    driven(memory, steps)


def test_rows_are_filtered_and_sorted(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"oslo", "enter")
        assert column(app, 7) == ["Tom lives in Oslo."]
        await pilot.press("slash", "escape")
        assert len(column(app, 7)) > 1 and app.query_one(Input).value == ""
        for name in [*ORDERS][1:]:
            await pilot.press("s")
            assert words(app, "#message") == f"sorted by {name}"

    driven(memory, steps)


def test_what_cannot_be_done_is_said(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("d")  # a text has no form to give up
        await settled(pilot)
        assert "is plaintext" in words(app, "#message")

    driven(memory, steps)


def test_an_adapter_is_trained_once_somebody_says_so_and_its_job_does_not_outlive_the_view(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, asked = threading.Event(), list[str]()

    def promote(ids: list[str], to: str, progress: Callable[[int, int, float], None]) -> None:
        asked.append(to)
        began.set()
        while True:  # as long as it is not stopped
            progress(1, 220, 0.5)
            time.sleep(0.01)

    calls = memory.within()
    monkeypatch.setattr(calls, "promote", promote, raising=False)
    monkeypatch.setattr(memory, "within", lambda *_: calls)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("p", "n")
        await settled(pilot)
        assert asked == []
        await pilot.press("p", "y")
        assert await asyncio.to_thread(began.wait, 10) and asked == ["parametric"]

    driven(memory, steps)  # comes to an end


@pytest.mark.slow
def test_a_training_that_is_left_can_be_taken_up_again(memory: Memory) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("p", "y")
        while not any("train" in job["note"] for job in memory.jobs()["results"]):
            await asyncio.sleep(0.1)

    driven(memory, steps)
    assert [job["state"] for job in memory.jobs()["results"]] == ["interrupted"]
