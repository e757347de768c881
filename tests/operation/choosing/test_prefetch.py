"""KV that is there before it is asked for, on the embedded model, a vault and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memos.config import Config, SchedulerConfig
from memos.cube import Form
from memos.kernel.mem_os import MemOS

HOMES = {"Mira": "Lisbon", "Tomas": "Oslo", "Ines": "Quito"}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> MemOS:
    return MemOS(vault=tmp_path_factory.mktemp("loaded"))


def opened(vault: Path, loaded: MemOS, **config: Any) -> MemOS:
    # what is fastest on this machine at this moment is not what is tested here
    settings = SchedulerConfig(choice="dearest", routing="retrieval", **config)
    return MemOS(Config(scheduler=settings), vault=vault, model=loaded.host.model, tokenizer=loaded.host.tokenizer)


def tell(kernel: MemOS) -> list[str]:
    """Each person a topic group with KV; the ids of what was said."""
    ids = []
    for person, home in HOMES.items():
        (cube,) = kernel.add([{"speaker": person, "content": f"{person} lives in {home}."}])
        kernel.promote([cube.id], "activation")
        ids.append(cube.id)
    return ids


def rounds(kernel: MemOS, number: int) -> None:
    """One after the other is asked about; then what is done in the background is waited for."""
    for person in [*HOMES] * number:
        reply = kernel.ask(f"Where does {person} live?")
        assert reply.admission.form is Form.ACTIVATION and reply.text == HOMES[person]
        kernel.parts.serving()._background.submit(int).result()


@pytest.mark.parametrize("prefetch", [1 << 20, 0])
def test_what_is_asked_next_each_time_is_in_memory_by_then(tmp_path: Path, loaded: MemOS, prefetch: int) -> None:
    with opened(tmp_path, loaded) as kernel:
        tell(kernel)
        sizes = [kv.blob.tokens * kernel.host.kv_bytes for kv in kernel.cubes(form=Form.ACTIVATION) if kv.blob]
    room = int(1.5 * max(sizes))  # for one of the three
    with opened(tmp_path, loaded, host_kv_bytes=room, prefetch_kv_bytes=prefetch) as kernel:
        rounds(kernel, 8 if prefetch else 2)
        serving = kernel.parts.serving()
        held = [int(kv.rows * kernel.host.kv_bytes) for kv in serving._tiers.all().values()]
        assert sum(held) <= room
        if prefetch:
            assert (
                len(HOMES) * 8 >= serving.prefetched.total() >= serving.prefetch_hits.total() >= 5
            )  # the sequence is learnt first
        else:
            assert serving.prefetched.total() == serving.prefetch_hits.total() == 0


def test_what_was_learnt_is_there_in_the_next_process(tmp_path: Path, loaded: MemOS) -> None:
    with opened(tmp_path, loaded) as kernel:
        first, second, _ = tell(kernel)
        rounds(kernel, 3)
        uses = kernel.vault.usage.accesses()
        learnt = kernel.parts.foresight().next("default", uses[-1][0].timestamp())
        assert [id for _, _, id in uses[:2]] == [first, second] and {user for _, user, _ in uses} == {"default"}
        assert learnt
    with opened(tmp_path, loaded) as kernel:
        assert kernel.parts.foresight().next("default", uses[-1][0].timestamp()) == learnt


def test_nothing_is_left_of_the_uses_of_what_was_deleted(tmp_path: Path, loaded: MemOS) -> None:
    with opened(tmp_path, loaded) as kernel:
        first, *others = tell(kernel)
        rounds(kernel, 2)
        kernel.delete(first)
        assert {id for _, _, id in kernel.vault.usage.accesses()} == set(others)


def test_the_latest_uses_are_learnt_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime, timedelta, timezone

    monkeypatch.setattr("memos.infrastructure.vault.tables.cube_table.ACCESSES", 3)
    start = datetime(2025, 1, 1, tzinfo=timezone.utc)
    with MemOS(vault=tmp_path) as kernel:
        (cube,) = kernel.add([{"speaker": "Mira", "content": "Mira lives in Lisbon."}])
        for n in range(7):
            kernel.vault.usage.record([cube.id, "deleted meanwhile"], start + timedelta(days=n), "ada")
        assert kernel.vault.usage.accesses() == [(start + timedelta(days=n), "ada", cube.id) for n in (4, 5, 6)]


def test_where_there_is_no_kv_the_machine_is_not_measured(tmp_path: Path, loaded: MemOS) -> None:
    with MemOS(vault=tmp_path, model=loaded.host.model, tokenizer=loaded.host.tokenizer) as kernel:
        (cube,) = kernel.add([{"speaker": "Mira", "content": "I live in Lisbon."}])
        assert kernel.ask("Where does Mira live?").text == "Lisbon"
        kernel.parts.serving()._background.submit(int).result()
        assert kernel.parts.serving()._known_costs.if_made is None
        kernel.promote([cube.id], "activation")
        kernel.ask("Where does Mira live?")
        assert kernel.parts.serving()._known_costs.if_made is not None
