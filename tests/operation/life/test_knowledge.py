"""What is known, kept current: told once, replaced and brought back, made one and cut in parts, tagged and limited."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.config import Config, LifecycleConfig, LimitConfig, LimitsConfig, SchedulerConfig
from memos.cube import Fact, MemCube, Namespace, Probe, State
from memos.errors import BadTransition, Denied, InputError, NoRoom, NotFound
from memos.ops import Add

MONDAY = datetime(2025, 3, 3, 9, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("vault")) as kernel:
        yield kernel


def say(memos: MemOS, user: str, *texts: str, speaker: str = "Mira", day: int | None = None) -> list[str]:
    """Ids of what is kept of them; said on so many days after Monday, or at no known time."""
    when = {} if day is None else {"time": (MONDAY + timedelta(days=day)).isoformat()}
    return [c.id for text in texts for c in memos.within(user).add([{"speaker": speaker, "content": text, **when}])]


def texts(memos: MemOS, user: str) -> list[str]:
    return [cube.text for cube in memos.within(user).memories()]


# told again


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("I live in Oslo.", "I am based in Oslo."),
        ("I have a cat as a pet.", "i keep a CAT at home!"),
        ("The key is under the mat in the hall of House 7.", "The key is under the mat, in the hall of house 7"),
        ("我住在上海。", "我住在上海！"),
    ],
)
def test_what_is_told_again_is_counted_and_not_kept_twice(memos: MemOS, ada: str, first: str, again: str) -> None:
    [cube] = memos.within(ada).add(first)
    assert [c.id for c in memos.within(ada).add(again)] == [cube.id]
    assert [c.id for c in memos.within(ada).add(again)] == [cube.id]
    assert memos.within(ada).get(cube.id).usage.repeats == 2
    assert texts(memos, ada) == [cube.text]
    told = [event["event"] for event in memos.within(ada).history(cube.id)]
    assert told == ["version", "state", "told again", "told again"]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("I live in Oslo.", "I live in Oslo with my two cats, Tom and Kim."),
        ("Tom has a cat.", "Tom does not have a cat."),
        ("Tom likes Anna.", "Anna likes Tom."),
        ("I like to eat soup.", "I used to like to eat soup."),
        ("The train leaves at 7.", "The train leaves at 8."),
    ],
)
def test_what_says_something_else_is_kept(memos: MemOS, ada: str, first: str, other: str) -> None:
    one, two = memos.within(ada).add(first)[0], memos.within(ada).add(other)[0]
    assert one.id != two.id and memos.within(ada).get(one.id).usage.repeats == 0


def test_what_may_have_happened_again_is_kept_again(memos: MemOS, ada: str) -> None:
    event = "I went to the dentist in Oslo."
    monday, friday = say(memos, ada, event, day=0), say(memos, ada, event, day=4)
    assert monday != friday and say(memos, ada, event, day=0) == monday
    # a lasting fact is the same fact on any day
    assert say(memos, ada, "I live in Oslo.", day=0) == say(memos, ada, "I live in Oslo.", day=4)


def test_the_same_from_somebody_else_is_another_memory(memos: MemOS, ada: str, bob: str) -> None:
    assert say(memos, ada, "I live in Oslo.") != say(memos, ada, "I live in Oslo.", speaker="Tom")
    memos.within(bob).add("The door sticks in House 7.")
    assert "House 7" not in " ".join(texts(memos, ada))


def test_of_a_long_text_each_statement_is_compared_with_its_own_words_alone(
    memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, at = list[MemCube](), memos.vault.at
    monkeypatch.setattr(memos.vault, "at", lambda ids: read.extend(found := at(ids)) or found)
    ops = [Add(text=f"Box number {n} was left behind.", origin="file:book.txt") for n in range(40)]
    kept = memos.parts.knowledge.remember([*ops, ops[7]], Namespace(user_id=ada))
    assert len(texts(memos, ada)) == 40 and kept[-1].id == kept[7].id
    assert len(read) < 4 * len(ops)  # all that came before, for each: 20 times as many


def test_what_is_kept_unread_is_a_memory_for_each(memos: MemOS, ada: str) -> None:
    ops = [Add(text="Hello.", speaker="Tom", said=MONDAY + timedelta(hours=n)) for n in (0, 1, 0)]
    cubes = memos.within(ada).keep(ops)
    assert cubes[0] == cubes[2] != cubes[1] and len(memos.within(ada).memories()) == 2


def test_what_is_told_again_after_something_else_is_changed_back(memos: MemOS, ada: str) -> None:
    [first] = say(memos, ada, "I play the piano.", day=0)
    say(memos, ada, "I also play the flute.", day=1)
    [again] = say(memos, ada, "I play the piano.", day=2)
    assert again != first and memos.within(ada).get(first).state is State.ARCHIVED
    assert texts(memos, ada) == ["Mira, 4 March 2025: I also play the flute.", "Mira: I play the piano."]


# replaced


def test_what_was_replaced_is_told_as_of_any_time_and_comes_back(memos: MemOS, ada: str) -> None:
    [oslo] = say(memos, ada, "I live in Oslo.", day=0)
    [rome] = say(memos, ada, "I have moved to Rome.", day=10)
    before = memos.vault.now()
    assert [c.id for c in memos.within(ada).memories()] == [rome]

    def ids(day: int, known_at: datetime | None = None) -> list[str]:
        then = memos.within(ada).memories(true_at=MONDAY + timedelta(days=day), known_at=known_at)
        return [c.id for c in then]

    assert (ids(-1), ids(5), ids(20)) == ([], [oslo], [rome])
    assert ids(20, known_at=MONDAY) == []  # nothing was known then
    assert memos.within(ada).reinstate(oslo).state is State.ACTIVATED
    assert ids(20) == [oslo, rome] and ids(20, known_at=before) == [rome]
    with pytest.raises(BadTransition, match=f"cube {oslo} is activated and was not superseded"):
        memos.within(ada).reinstate(oslo)


def test_an_old_text_is_as_it_was_known(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("The door code of House 7 is 1234.")
    before = memos.vault.now()
    memos.within(ada).update(cube.id, "The door code of House 7 is 9999.")
    [then], [now] = memos.within(ada).memories(known_at=before), memos.within(ada).memories()
    assert ("1234" in then.text, "9999" in now.text) == (True, True)


# made one, cut in parts


def test_memories_become_one_and_are_parted_again(memos: MemOS, ada: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.")
    made = memos.within(ada).fuse(ids)
    assert made.text == "Mira: I live in Oslo. Mira: I have a cat as a pet."
    assert {fact.relation for fact in made.payload.facts} == {"city", "pet"}  # type: ignore[union-attr]
    assert [c.id for c in memos.within(ada).memories()] == [made.id]
    assert [hit.cube.id for hit in memos.within(ada).search("Where does Mira live?")] == [made.id]
    assert memos.within(ada).ask("Where does Mira live?", via="plaintext").text == "Oslo"
    memos.within(ada).update(ids[1], "I have a dog as a pet.")  # a source says something else now
    assert sorted(texts(memos, ada)) == ["Mira: I have a dog as a pet.", "Mira: I live in Oslo."]
    again = memos.within(ada).fuse(ids, "Mira lives in Oslo with a dog.")
    assert [c.id for c in memos.within(ada).split(again.id)] == ids
    assert [c.id for c in memos.within(ada).memories()] == ids


def test_a_memory_is_cut_into_its_sentences(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("Mira: I live in Oslo. I have a cat as a pet.")
    parts = memos.within(ada).split(cube.id)
    assert [part.text for part in parts] == ["Mira: I live in Oslo.", "Mira: I have a cat as a pet."]
    assert memos.within(ada).get(cube.id).state is State.MERGED
    memos.within(ada).delete(cube.id)  # no part of it is left
    assert memos.within(ada).memories() == []


def test_a_fused_memory_goes_with_any_of_its_sources(memos: MemOS, ada: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.")
    made = memos.within(ada).fuse(ids)
    memos.within(ada).delete(ids[0])
    assert [c.id for c in memos.within(ada).memories()] == [ids[1]]
    with pytest.raises(NotFound):
        memos.within(ada).get(made.id)


@pytest.mark.parametrize("call", ["fuse", "split", "tag", "reinstate"])
def test_only_the_owner_reworks_a_memory(memos: MemOS, ada: str, bob: str, call: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.")
    given: dict[str, Any] = {
        "fuse": (ids,), "split": (ids[0],), "tag": (ids[0], ["always"]), "reinstate": (ids[0],)
    }  # fmt: skip
    with pytest.raises((NotFound, Denied)):
        getattr(memos.within(bob), call)(*given[call])
    assert [c.id for c in memos.within(ada).memories()] == ids


def test_what_cannot_be_reworked_says_why(memos: MemOS, ada: str) -> None:
    [one] = say(memos, ada, "I live in Oslo.")
    with pytest.raises(InputError, match="cannot be fused; name two or more"):
        memos.within(ada).fuse([one, one])
    with pytest.raises(InputError, match="says one thing"):
        memos.within(ada).split(one)
    with pytest.raises(InputError, match="none empty"):
        memos.within(ada).tag(one, ["always", " "])
    memos.within(ada).freeze(one)
    [two] = say(memos, ada, "I have a cat as a pet.")
    with pytest.raises(BadTransition, match="frozen"):
        memos.within(ada).fuse([one, two])
    assert len(memos.within(ada).memories()) == 2


def test_those_that_say_the_same_become_one(memos: MemOS, ada: str) -> None:
    fact = Fact(subject="Mira", relation="city", object="Oslo")
    said = ("Mira lives in Oslo.", "Mira is based in Oslo.", "Mira has a flat in Oslo.")
    memos.within(ada).keep([Add(text=text, facts=(fact,), segment="Mira") for text in said])
    [made] = memos.within(ada).consolidate()
    assert texts(memos, ada) == ["Mira lives in Oslo."] and len(made.sources) == 3
    assert memos.within(ada).consolidate() == []


# held against each other


def test_an_audit_names_what_is_told_twice_overtaken_or_unsupported(memos: MemOS, ada: str) -> None:
    at = [MONDAY + timedelta(days=n) for n in range(3)]
    oslo, rome = (Fact(subject="Mira", relation="city", object=name, sole=True) for name in ("Oslo", "Rome"))
    more = "Mira lives in Oslo, where she has learnt to sail."
    kept = memos.within(ada).keep(
        [
            Add(text=more, said=at[0], facts=(oslo,), more=True),
            Add(text="Mira lives in Rome.", said=at[1], facts=(rome,)),
            Add(text="Mira is based in Rome.", said=at[2], facts=(rome,)),
            Add(text="Tom is well.", facts=(Fact(subject="Tom", relation="job", object="pilot"),)),
        ]
    )
    found = memos.within(ada).audit_memory()
    assert found.memories == 4
    assert (found.duplicates, found.stale, found.unsupported) == ((kept[2].id,), (kept[0].id,), (kept[3].id,))
    assert found.share(found.stale) == 0.25
    pairs = [(pair.one.id, pair.other.id) for pair in memos.within(ada).conflicts()]
    assert pairs == [(kept[0].id, kept[1].id), (kept[0].id, kept[2].id)]


def test_an_audit_of_nothing_finds_nothing(memos: MemOS, ada: str) -> None:
    found = memos.within(ada).audit_memory()
    assert (found.memories, found.share(found.stale)) == (0, 0.0) and memos.within(ada).conflicts() == []


# tags and limits


def test_what_is_always_in_is_seen_by_every_request(memos: MemOS, ada: str) -> None:
    [rule] = memos.within(ada).add("The house rule is silence after ten.", tags=["always"])
    say(memos, ada, "I live in Oslo.")
    cubes = memos.within(ada).ask("Where does Mira live?", via="plaintext").admission.cubes
    assert rule.id in [c.id for c in cubes] and len(cubes) == 2
    memos.within(ada).tag(rule.id, [])
    cubes = memos.within(ada).ask("Where does Mira live?", via="plaintext").admission.cubes
    assert rule.id not in [c.id for c in cubes]


def test_of_two_that_are_kept_apart_one_is_seen(memos: MemOS, ada: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.", "I like to eat soup.")
    for id in ids[:2]:
        memos.within(ada).tag(id, ["apart:home"])
    with MemOS(Config(scheduler=SchedulerConfig(beside=0)), vault=memos.vault.path) as kernel:
        for question, seen, unseen in (("Where does Mira live?", 0, 1), ("What pet does Mira have?", 1, 0)):
            cubes = [c.id for c in kernel.within(ada).ask(question, via="plaintext").admission.cubes]
            assert ids[seen] in cubes and ids[unseen] not in cubes and ids[2] in cubes


def test_a_user_keeps_no_more_than_its_limit(tmp_path: Path) -> None:
    limits = LimitsConfig(memories=2, users={"bob": LimitConfig(memories=1), "cy": LimitConfig()})
    with MemOS(Config(limits=limits), vault=tmp_path) as memos:
        for user, most in (("ann", 2), ("bob", 1), ("cy", 3)):
            for text in ("I live in Oslo.", "I have a cat as a pet.", "I like to eat soup.")[:most]:
                say(memos, user, text)
        for user, most in (("ann", 2), ("bob", 1)):
            with pytest.raises(NoRoom, match=f"{user} may have {most} memories .limits.memories."):
                say(memos, user, "I work as a nurse.", "I play the piano.")
            assert len(memos.within(user).memories()) == most
            say(memos, user, "I live in Oslo.")  # told again: nothing more is kept


def test_a_user_may_not_take_more_kv_than_its_limit(tmp_path: Path) -> None:
    with MemOS(Config(limits=LimitsConfig(kv_bytes=1)), vault=tmp_path) as memos:
        [home, pet] = say(memos, "ann", "I live in Oslo.", "I have a cat as a pet.")
        memos.within("ann").promote([home], "activation")
        with pytest.raises(NoRoom, match="ann has .* bytes of KV and may have 1"):
            memos.within("ann").promote([pet], "activation")


# what a review found


def test_what_a_fused_memory_was_made_of_is_replaced_with_it(memos: MemOS, ada: str) -> None:
    fact = Fact(subject="Mira", relation="city", object="Oslo", sole=True)
    said = ("Mira lives in Oslo.", "Mira is based in Oslo.", "Mira has a flat in Oslo.")
    memos.within(ada).keep([Add(text=text, facts=(fact,), segment="Mira") for text in said])
    memos.within(ada).consolidate()
    memos.within(ada).add("Mira has moved to Rome.")
    assert texts(memos, ada) == ["Mira has moved to Rome."]


def test_what_replaces_a_part_of_a_fused_memory_leaves_the_rest(memos: MemOS, ada: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.")
    memos.within(ada).fuse(ids, "Mira: I live in Oslo.")
    say(memos, ada, "I have moved to Rome.")
    assert sorted(texts(memos, ada)) == ["Mira: I have a cat as a pet.", "Mira: I have moved to Rome."]


def test_forgetting_reaches_what_a_memory_was_made_of(memos: MemOS, ada: str) -> None:
    fact = Fact(subject="User", relation="city", object="Oslo")
    said = ("User: I live in Oslo.", "User: I am based in Oslo.")
    memos.within(ada).keep([Add(text=text, speaker="User", facts=(fact,), segment="User") for text in said])
    memos.within(ada).consolidate()
    assert memos.within(ada).chat("Forget that I live in Oslo.").text.startswith("Forgotten: ")
    assert memos.within(ada).cubes() == []


def test_a_restore_merges_nothing_into_what_was_deleted(memos: MemOS, ada: str) -> None:
    ids = say(memos, ada, "I live in Oslo.", "I have a cat as a pet.")
    made = memos.within(ada).fuse(ids)
    memos.within(ada).snapshot("fused")
    memos.within(ada).delete(made.id)
    memos.within(ada).restore("fused")
    assert [c.id for c in memos.within(ada).memories()] == ids


def test_a_restore_brings_back_what_a_fused_memory_said(memos: MemOS, ada: str) -> None:
    made = memos.within(ada).fuse(say(memos, ada, "I live in Oslo.", "I have a cat as a pet."))
    memos.within(ada).snapshot("fused")
    memos.within(ada).update(made.id, "I live in Rome.")
    memos.within(ada).restore("fused")
    assert texts(memos, ada) == [made.text]


def test_what_was_parted_and_is_brought_back_answers_alone(memos: MemOS, ada: str) -> None:
    made = memos.within(ada).fuse(say(memos, ada, "I live in Oslo.", "I have a cat as a pet."))
    memos.within(ada).split(made.id)
    memos.within(ada).unarchive(made.id)
    assert [c.id for c in memos.within(ada).memories()] == [made.id]


@pytest.mark.parametrize(
    "said",
    [
        ["I play the piano.", "I also play the flute.", "I play the piano."],
        ["I live in Oslo and sail a lot.", "I have moved to Rome.", "I live in Oslo and sail a lot."],
    ],
)
def test_what_is_told_back_without_a_time_is_the_latest(memos: MemOS, ada: str, said: list[str]) -> None:
    first, _, again = say(memos, ada, *said)
    assert first != again and texts(memos, ada)[-1] == f"Mira: {said[0]}"


def test_a_change_back_within_one_call_holds(memos: MemOS, ada: str) -> None:
    said = ("I live in Oslo.", "I have moved to Rome.", "I live in Oslo.")
    memos.within(ada).add([{"speaker": "Mira", "content": text} for text in said])
    assert texts(memos, ada) == ["Mira: I live in Oslo."]


def test_what_has_expired_may_be_told_again(memos: MemOS, ada: str) -> None:
    turn = {"speaker": "Mira", "content": "I live in Oslo.", "time": MONDAY.isoformat()}
    [short] = memos.within(ada).add([turn], ttl=timedelta(milliseconds=1))
    while memos.within(ada).get(short.id).state is not State.EXPIRED:
        pass
    [lasting] = memos.within(ada).add([turn])
    assert lasting.id != short.id and texts(memos, ada) == ["Mira: I live in Oslo."]


def test_telling_again_adds_probes_and_tags(memos: MemOS, ada: str) -> None:
    probes = [Probe(question="Where?", answer="Oslo"), Probe(question="Which city?", answer="Oslo", held_out=True)]
    [first] = memos.within(ada).add("Mira lives in Oslo.", probes=probes[:1])
    [again] = memos.within(ada).add("Mira lives in Oslo.", probes=probes[1:], tags=["always"])
    assert first.id == again.id and again.header.tags == ("always",)
    assert again.payload.probes == tuple(probes)  # type: ignore[union-attr]
    memos.within(ada).freeze(first.id)
    assert memos.within(ada).add("Mira lives in Oslo.", tags=["other"])[0].id != first.id  # a locked one takes nothing


def test_since_when_it_is_replaced_is_when_the_last_of_it_was(memos: MemOS, ada: str) -> None:
    [both] = say(memos, ada, "I live in Oslo and work as a nurse.", day=0)
    say(memos, ada, "I have moved to Rome.", day=5)
    say(memos, ada, "I now work as a baker.", day=10)
    then = memos.within(ada).memories(true_at=MONDAY + timedelta(days=7))
    assert both in [c.id for c in then]
    assert both not in [c.id for c in memos.within(ada).memories(true_at=MONDAY + timedelta(days=11))]


def test_an_idle_source_takes_nothing_along_and_ageing_goes_on(tmp_path: Path) -> None:
    config = Config(lifecycle=LifecycleConfig(archive_after_idle_days=30))
    with MemOS(config, vault=tmp_path) as kernel:
        made = kernel.within("ann").fuse(say(kernel, "ann", "I live in Oslo.", "I have a cat as a pet."))
        later = kernel.vault.now() + timedelta(days=40)
        kernel.vault.usage.record([made.id], later)
        kernel.parts.lifecycle.recalled([made])
        kernel.parts.ageing.age(later)
        assert kernel.within("ann").get(made.id).state is State.ACTIVATED
        kernel.parts.ageing.age(later + timedelta(days=40))  # all at once
        assert kernel.within("ann").memories() == []
