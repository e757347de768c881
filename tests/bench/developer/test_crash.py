"""The benchmark of kills finds what is lost, and finds nothing lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memos.bench.developer import crash
from memos.bench.developer.crash import Effects, bench_crash
from memos.bench.vault import drawn
from memos.cube import MemCube, Namespace
from memos.infrastructure.vault.mem_vault import MemVault

pytestmark = pytest.mark.sqlite


def shown(*_: object) -> None: ...


@pytest.mark.slow
@pytest.mark.crash
def test_a_process_that_is_killed_while_it_writes_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    report = bench_crash(3, 20, 0, shown)
    assert report["acknowledged"] > 3
    assert (report["lost"], report["partial"], report["problems"]) == (0, 0, [])
    assert report["check_clean"] and report["restart_s_max"] < 10


@pytest.mark.crash
@pytest.mark.slow
def test_two_hundred_kills_lose_nothing() -> None:
    report = bench_crash(200, 0, 1, shown)
    assert (report["lost"], report["partial"], report["problems"]) == (0, 0, [])


def of_the_writer(count: int) -> list[MemCube]:
    return [
        cube.model_copy(update={"namespace": Namespace(user_id="writer")}) for cube in drawn(random.Random(0), count)
    ]


@pytest.mark.crash
def test_what_is_lost_or_half_there_is_counted(tmp_path: Path) -> None:
    owned = [
        cube.model_copy(update={"rights": cube.rights.model_copy(update={"owner": "writer"})})
        for cube in of_the_writer(4)
    ]
    whole = crash._effects(*owned)
    with MemVault(tmp_path / "vault") as vault:
        for cube in owned[:3]:
            vault.put(cube)
        for expected, begun, told in (
            (crash._effects(*owned[:3]), [], (0, 0)),
            (whole, [], (1, 0)),  # acknowledged, and not there
            ({owned[0].id: (1, "another"), **crash._effects(*owned[1:3])}, [], (1, 0)),
            (crash._effects(*owned[:2]), [crash._effects(*owned[2:])], (0, 1)),  # of two, one is there
            (crash._effects(*owned[:2]), [], (0, 1)),  # written by nobody
            (crash._effects(*owned[:2]), [crash._effects(owned[2])], (0, 0)),  # begun, and whole
            (crash._effects(*owned[:3]), [crash._effects(owned[3])], (0, 0)),  # begun, and nothing of it
            ({**whole, owned[3].id: None}, [], (0, 0)),
            ({owned[0].id: None, **crash._effects(*owned[1:3])}, [], (1, 0)),  # it came back
        ):
            expectations: Effects = dict(expected)
            assert crash._judge(vault, expectations, begun) == told
