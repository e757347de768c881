"""Trainings on one device: one after the other, whatever process they are of."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from memos.errors import Cancelled
from memos.infrastructure.host.training import turn
from memos.infrastructure.host.training.turn import training_turn


def test_trainings_on_a_device_run_one_after_the_other_and_each_knows_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "SHARED", tmp_path)
    monkeypatch.setattr(turn, "POLL_S", 0.01)
    told, order = list[tuple[int, float | None]](), list[str]()

    def second() -> None:
        with training_turn("cpu", 1, lambda *place: told.append(place)):
            order.append("second")

    with training_turn("cpu", 1, lambda *_: None) as report:
        with training_turn("cuda:0", 1, lambda *_: None), training_turn("cpu", 2, lambda *_: None):
            pass  # another device, and as many at once as may be
        waits = threading.Thread(target=second)
        waits.start()
        while not told:
            time.sleep(0.01)
        report(0.5)
        while told[-1][1] is None:
            time.sleep(0.01)
        order.append("first")
    waits.join()
    assert order == ["first", "second"]
    assert told[0] == (1, None) and {place for place, _ in told} == {1}


def test_a_training_whose_process_died_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "SHARED", tmp_path)
    (tmp_path / "training-cpu").mkdir()
    (tmp_path / "training-cpu/000000001").touch()  # nobody holds it
    with training_turn("cpu", 1, lambda *_: pytest.fail("waits")):
        pass
    assert list((tmp_path / "training-cpu").iterdir()) == []


def test_who_waits_for_a_training_can_be_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "SHARED", tmp_path)

    def cancelled(*_: object) -> None:
        raise Cancelled("by somebody")

    with training_turn("cpu", 1, cancelled), pytest.raises(Cancelled), training_turn("cpu", 1, cancelled):
        pass
    assert list((tmp_path / "training-cpu").iterdir()) == []
