"""The life of memories through the kernel: times to expire in every form, ageing, locks, the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from memos import Config, MemOS
from memos.config import LifecycleConfig, SchedulerConfig
from memos.cube import State
from memos.errors import BadTransition, Denied, InputError, NotFound
from memos.ops import Add, Recall
from memos.plugins.care.check import problems_of

DAY = timedelta(days=1)
ASKED = "Where does Mira live?"


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    # what is dearest is used, however fast it is: the choice is not what is tested here
    config = Config(scheduler=SchedulerConfig(choice="dearest"), lifecycle=LifecycleConfig(archive_after_idle_days=30))
    with MemOS(config, vault=tmp_path / "vault") as kernel:
        yield kernel


def found(memos: MemOS, query: str = ASKED) -> list[str]:
    return [hit.cube.text for hit in memos.search(query)]


def test_what_has_expired_answers_in_no_form(memos: MemOS, later: Callable[[timedelta], None]) -> None:
    [home] = memos.add("Mira lives in Lisbon.", ttl=DAY)
    [job] = memos.add("Mira works as a nurse.")
    memos.promote([home.id, job.id], "activation")
    reply = memos.chat(ASKED, session="monday")
    assert "Lisbon" in reply.text and reply.admission.form is not None
    assert memos.ask(ASKED, via="activation").admission.activations
    later(DAY - timedelta(hours=1))
    assert "Mira lives in Lisbon." in found(memos)
    later(timedelta(hours=1))
    assert found(memos) == ["Mira works as a nurse."]
    assert memos.memories() == [memos.get(job.id)]
    assert memos.turns("monday") == []  # an answer may say again whatever the conversation had shown
    admission = memos.services.answering.admit(memos.caller, Recall(question=ASKED, about=("Mira",)))
    assert home.id not in {cube.id for cube in (*admission.cubes, *admission.internal)}
    assert admission.activations == ()
    assert "Lisbon" not in memos.ask(ASKED).text
    with pytest.raises(InputError, match=f"{home.id} is expired and cannot be promoted"):
        memos.promote(home.id, "activation")
    assert "its time to expire has come" in {move["why"] for move in memos.tick()}
    assert [e["state"] for e in memos.history(home.id) if e["event"] == "state"][-2:] == ["archived", "expired"]


def test_what_has_expired_stays_so_as_the_clock_goes_back(memos: MemOS, later: Callable[[timedelta], None]) -> None:
    memos.add("Mira lives in Lisbon.", ttl=DAY)
    later(DAY)
    assert found(memos) == []
    later(-DAY)
    assert found(memos) == []
    [again] = memos.add("Mira lives in Lisbon.")
    assert found(memos) == [again.text]


def test_a_correction_supersedes_even_as_the_clock_goes_back(memos: MemOS, later: Callable[[timedelta], None]) -> None:
    [home] = memos.add("Mira lives in Lisbon.")
    later(-10 * DAY)
    [moved] = memos.add("Mira now lives in Rome.")
    assert memos.get(home.id).state is State.ARCHIVED
    assert moved.header.created > home.header.created


@pytest.mark.parametrize(("first", "then", "days"), [(1, 3, 3), (3, 1, 3), (1, None, None), (None, 1, None)], ids=str)
def test_said_again_the_longer_life_holds(memos: MemOS, first: int | None, then: int | None, days: int | None) -> None:
    begun = memos.vault.now()
    for ttl in (first, then):
        [cube] = memos.add("Mira lives in Lisbon.", ttl=None if ttl is None else ttl * DAY)
    ends = cube.header.expires
    assert (None if ends is None else round((ends - begun) / DAY)) == days
    assert len(memos.cubes()) == 1


def test_a_time_without_a_zone_is_utc(memos: MemOS) -> None:
    [cube] = memos.add("Mira lives in Lisbon.", expires=datetime(2999, 1, 1))
    [kept] = memos.keep([Add(text="Mira is a nurse.", expires=datetime(2999, 1, 1))])
    assert cube.header.expires == kept.header.expires == datetime(2999, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ttl": timedelta()}, "ttl 0:00:00 has passed .*; give a later time, or leave it out"),
        ({"ttl": -DAY}, "ttl -1 day, 0:00:00 has passed"),
        ({"ttl": timedelta.max}, "goes beyond the year 9999; leave it out"),
        ({"expires": datetime(2020, 1, 1)}, r"expires 2020-01-01 00:00:00\+00:00 has passed"),
        ({"ttl": DAY, "expires": datetime(2999, 1, 1)}, "ttl and expires both say .*; give one of them"),
    ],
)
def test_a_life_that_cannot_be_is_refused(memos: MemOS, given: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        memos.add("Mira lives in Lisbon.", **given)  # type: ignore[arg-type]
    assert memos.cubes() == []


def test_a_tick_archives_what_nobody_uses_of_the_caller_alone(memos: MemOS, later: Callable[[timedelta], None]) -> None:
    [mine], [his] = memos.add("Mira lives in Lisbon."), memos.within("tom").add("Tom lives in Rome.")
    later(31 * DAY)
    [done] = memos.tick()
    assert done == {"move": "archived", "cube": mine.id, "why": "neither recalled nor changed for 30 days"}
    assert memos.within("tom").get(his.id).state is State.GENERATED
    assert found(memos) == []
    assert memos.unarchive(mine.id).state is State.ACTIVATED
    assert found(memos) == ["Mira lives in Lisbon."]


def test_a_frozen_memory_answers_and_is_not_changed_until_it_is_thawed(memos: MemOS) -> None:
    [cube] = memos.add("Mira lives in Lisbon.")
    assert memos.freeze(cube.id, why="an audit").state is State.FROZEN
    assert found(memos) == ["Mira lives in Lisbon."]
    for change in (
        lambda: memos.update(cube.id, "Mira lives in Rome."),
        lambda: memos.rollback(cube.id, 1),
        lambda: memos.delete(cube.id),
        lambda: memos.freeze(cube.id),
        lambda: memos.unarchive(cube.id),
    ):
        with pytest.raises(BadTransition, match="is frozen and cannot"):
            change()
    assert memos.add("Mira lives in Lisbon.") == [memos.get(cube.id)]
    assert memos.thaw(cube.id).state is State.ACTIVATED
    assert memos.update(cube.id, "Mira lives in Rome.").version == 2
    assert "an audit" in {event.get("why") for event in memos.history(cube.id)}


def test_a_rollback_is_found_by_its_old_words(memos: MemOS) -> None:
    [cube] = memos.add("Mira lives in Lisbon.")
    memos.update(cube.id, "Mira lives in Rome.")
    memos.promote(cube.id, "activation")
    back = memos.rollback(cube.id, 1)
    assert (back.version, found(memos)) == (3, ["Mira lives in Lisbon."])
    assert memos.diff(cube.id, 1, 3) == []
    assert "-Mira lives in Lisbon." in memos.diff(cube.id, 1, 2)
    assert "+Mira lives in Lisbon." in memos.history(cube.id, diffs=True)[-1]["diff"]
    assert "Lisbon" in memos.ask(ASKED).text
    with pytest.raises(NotFound, match="has no version 9; see `memos show"):
        memos.rollback(cube.id, 9)


def test_the_way_back_brings_kv_back_into_use(memos: MemOS) -> None:
    [home] = memos.add("Mira lives in Lisbon.")
    kv = memos.promote(home.id, "activation")
    memos.snapshot("monday")
    memos.update(home.id, "Mira lives in Rome.")
    assert "Rome" in memos.ask(ASKED).text
    done = memos.restore("monday")
    assert (done.changed, done.revived) == ([home.id], [kv.id])
    reply = memos.ask(ASKED, via="activation")
    assert "Lisbon" in reply.text and [c.id for c in reply.admission.activations] == [kv.id]
    memos.restore(done.undo)
    assert "Rome" in memos.ask(ASKED).text
    assert [s.name for s in memos.snapshots()][:2] == ["monday", done.undo]
    memos.delete_snapshot("monday")
    assert "monday" not in [s.name for s in memos.snapshots()]
    assert problems_of(memos.vault) == []


def test_another_user_leads_no_life_but_their_own(memos: MemOS) -> None:
    [cube] = memos.add("Mira lives in Lisbon.")
    memos.snapshot("monday")
    for call in (
        lambda: memos.within("tom").freeze(cube.id),
        lambda: memos.within("tom").thaw(cube.id),
        lambda: memos.within("tom").archive(cube.id),
        lambda: memos.within("tom").rollback(cube.id, 1),
        lambda: memos.within("tom").diff(cube.id, 1, 1),
    ):
        with pytest.raises(NotFound, match=f"no cube {cube.id}"):
            call()
    with pytest.raises(NotFound, match="no snapshot 'monday' of tom"):
        memos.within("tom").restore("monday")
    assert memos.within("tom").snapshots() == []
    assert memos.vault.get(cube.id) == cube


def test_a_reader_may_look_at_a_history_and_not_change_it(memos: MemOS) -> None:
    [cube] = memos.add("Mira lives in Lisbon.")
    memos.grant(cube.id, "tom", "reader")
    assert memos.within("tom").diff(cube.id, 1, 1) == []
    for call in (memos.within("tom").freeze, memos.within("tom").archive):
        with pytest.raises(Denied, match="tom may not (manage|write)"):
            call(cube.id)
