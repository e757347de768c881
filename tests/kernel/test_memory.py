"""A kernel remembers, finds, corrects and forgets. The real vault, reader and embedder; no answer of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.cube import MemCube, Probe, State, Text
from memos.errors import EmptyMemory, InputError, NotFound
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.infrastructure.vault.mem_vault import MemVault
from memos.kernel.wiring import Parts
from memos.plugins.care.check import problems_of


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("kernel") / "vault") as kernel:
        yield kernel


def texts(cubes: list[MemCube]) -> list[str]:
    return [cube.text for cube in cubes]


def found(memos: MemOS, query: str, user: str) -> list[str]:
    return [hit.cube.text for hit in memos.within(user).search(query)]


def moves(memos: MemOS, id: str, user: str) -> list[str]:
    return [f"{e['state']}: {e['why']}" for e in memos.within(user).history(id) if e["event"] == "state"]


def turn(content: str, day: int = 0, speaker: str = "Tom") -> dict[str, str]:
    said = {"time": f"2025-03-{day:02}T09:00:00"} if day else {}
    return {"speaker": speaker, "content": content, **said}


# adding and finding


def test_a_statement_is_found_by_its_meaning(memos: MemOS, ada: str) -> None:
    [tea, _] = [memos.within(ada).add(text)[0] for text in ("Ada drinks green tea.", "The car is in the garage.")]
    best = memos.within(ada).search("Which beverage does Ada like?")[0]
    assert (best.cube, memos.within(ada).get(tea.id)) == (tea, tea)
    assert best.score > 0.3


def test_every_subject_of_a_crowd_is_found_first(memos: MemOS, ada: str) -> None:
    cities = {"Ann": "Oslo", "Ben": "Rome", "Cleo": "Lima", "Dan": "Cairo", "Eva": "Delhi", "Finn": "Quito"}
    cities |= {"Gus": "Tokyo", "Hana": "Bern", "Ivo": "Kyiv", "Jana": "Riga", "Kai": "Turin", "Lea": "Porto"}
    memos.within(ada).add([turn(f"{name} lives in {city}.") for name, city in cities.items()])
    first = {name: found(memos, f"Where does {name} live?", ada)[0] for name in cities}
    assert first == {name: f"{name} lives in {city}." for name, city in cities.items()}


def test_no_more_is_found_than_asked_for(memos: MemOS, ada: str) -> None:
    for n in range(4):
        memos.within(ada).add(f"Ada owns {n + 2} cats.")
    assert len(memos.within(ada).search("How many cats does Ada own?", top_k=3)) == 3


@pytest.mark.parametrize("words", ["", "  "])
def test_nothing_cannot_be_remembered_or_looked_for(memos: MemOS, ada: str, words: str) -> None:
    with pytest.raises(InputError, match="empty"):
        memos.within(ada).add(words)
    with pytest.raises(InputError, match="empty"):
        memos.within(ada).search(words)
    assert memos.within(ada).cubes() == []


def test_turns_are_kept_with_speaker_and_time_and_without_talk(memos: MemOS, ada: str) -> None:
    said = [turn("I live in Oslo.", 1), turn("Nice weather today!", 1), turn("Where do you live?", 1)]
    cube, *others = memos.within(ada).add([*said, {"role": "assistant", "content": "I live in a computer."}])
    assert [(c.header.kind, c.header.role) for c in others] == [("episode", "user")] * 2 + [("episode", "assistant")]
    assert [c.payload.facts for c in others if isinstance(c.payload, Text)] == [()] * 3
    assert cube.text == "Tom: I live in Oslo."
    [dated, _] = memos.within(ada).add([turn("I adopted a cat yesterday.", 1), turn("Oh!", 1)])
    assert dated.text.startswith("Tom, 1 March 2025: I adopted a cat yesterday")  # that alone would be no day
    assert (cube.header.speaker, str(cube.header.said)) == ("Tom", "2025-03-01 09:00:00+00:00")


def test_a_file_is_remembered_by_its_name(memos: MemOS, ada: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(json.dumps(turn(text)) for text in ("I live in Oslo.", "My sister is Eva.")))
    cubes = memos.within(ada).add(file)
    assert {cube.header.origin for cube in cubes} == {str(file)}
    assert "Tom: I live in Oslo." in texts(cubes)


def test_a_conversation_with_a_bad_turn_leaves_nothing(memos: MemOS, ada: str) -> None:
    with pytest.raises(InputError, match="turn 2"):
        memos.within(ada).add([turn("I live in Oslo."), {"speaker": "Tom"}])
    assert memos.within(ada).cubes() == []


@pytest.mark.parametrize("days", [(0, 0), (1, 2)], ids=["without times", "with times"])
def test_what_was_added_twice_is_there_once(memos: MemOS, ada: str, days: tuple[int, int]) -> None:
    talk = [turn("I live in Oslo.", days[0]), turn("My sister is Eva.", days[1])]
    first = memos.within(ada).add(talk)
    again = memos.within(ada).add(talk)
    assert [c.id for c in again] == [c.id for c in first] == [c.id for c in memos.within(ada).cubes()]
    assert [c.usage.repeats for c in again] == [0, 0]  # the same conversation is not told again


def test_the_same_words_at_another_time_are_another_memory(memos: MemOS, ada: str) -> None:
    memos.within(ada).add([turn("I ran 5 km in Oslo.", 1), turn("I ran 5 km in Oslo.", 2)])
    assert len(memos.within(ada).cubes()) == 2


def test_adding_again_does_not_bring_back_what_was_superseded(memos: MemOS, ada: str) -> None:
    talk = [turn("I live in Oslo.", 1), turn("I now live in Rome.", 2)]
    memos.within(ada).add(talk)
    before = memos.within(ada).cubes()
    memos.within(ada).add(talk)
    assert memos.within(ada).cubes() == before


def test_what_was_superseded_can_be_said_anew(memos: MemOS, ada: str) -> None:
    for text in ("Tom lives in Oslo.", "Tom now lives in Rome.", "Tom lives in Oslo."):
        [cube] = memos.within(ada).add(text)
    assert cube.state is State.GENERATED


def test_probes_given_later_are_kept(memos: MemOS, ada: str) -> None:
    """NoProbes says to add the statements with probes: that must do for one that is remembered already."""
    probe = Probe(question="When does the zorb hum?", answer="dusk")
    memos.within(ada).add("The zorb hums at dusk.")
    [cube] = memos.within(ada).add("The zorb hums at dusk.", probes=[probe])
    assert cube.payload.type == "text" and cube.payload.probes == (probe,)
    assert len(memos.within(ada).cubes()) == 1


# after a restart, beside another process


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        [cube] = memos.add("Ada lives in Oslo.")
    with MemOS(vault=tmp_path) as memos:
        assert memos.cubes() == [cube]
        assert found(memos, "Where does Ada live?", memos.config.user_id) == ["Ada lives in Oslo."]


def test_what_another_kernel_adds_is_found(tmp_path: Path) -> None:
    """As is what a process had committed but not yet indexed when it was killed, or indexed by another embedder."""
    with MemOS(vault=tmp_path) as memos, MemOS(vault=tmp_path) as other:
        memos.add("The car is in the garage.")
        other.add("Ada lives in Oslo.")
        assert found(memos, "Where does Ada live?", memos.config.user_id)[:1] == ["Ada lives in Oslo."]


# correcting


def test_a_correction_supersedes_what_it_replaces_alone(memos: MemOS, ada: str) -> None:
    [home, sister] = memos.within(ada).add([turn("I live in Oslo."), turn("My sister is Eva.")])
    [moved] = memos.within(ada).add([turn("Actually, I now live in Rome.")])
    assert memos.within(ada).get(home.id).state is State.ARCHIVED
    assert moves(memos, home.id, ada)[-1] == f"archived: superseded by {moved.id}"
    assert memos.within(ada).get(sister.id).state is State.GENERATED
    assert "Tom: I live in Oslo." not in found(memos, "Where does Tom live?", ada)


def test_a_correction_in_a_chat_supersedes(memos: MemOS, ada: str) -> None:
    memos.within(ada).chat("I live in Oslo.")
    reply = memos.within(ada).chat("Actually, I live in Rome.")
    assert reply.text.startswith("Noted:")
    assert [cube for cube in memos.within(ada).cubes() if cube.state is not State.ARCHIVED] == list(reply.remembered)


def test_a_correction_does_not_reach_what_was_said_later(memos: MemOS, ada: str) -> None:
    [late] = memos.within(ada).add([turn("I live in Lima.", 9)])
    memos.within(ada).add([turn("I now live in Rome.", 2)])
    assert memos.within(ada).get(late.id).state is State.GENERATED


def test_what_arrives_late_is_superseded_by_what_was_said_after_it(memos: MemOS, ada: str) -> None:
    [late] = memos.within(ada).add([turn("I now live in Lima.", 9)])
    [early] = memos.within(ada).add([turn("I live in Rome.", 2)])
    assert early.state is State.ARCHIVED
    assert moves(memos, early.id, ada)[-1] == f"archived: superseded by {late.id}"


def test_a_statement_goes_when_all_that_it_says_is_replaced(memos: MemOS, ada: str) -> None:
    [both] = memos.within(ada).add([turn("I live in Oslo and I work for Acme.", 1)])
    memos.within(ada).add([turn("I moved to Rome.", 2)])
    assert memos.within(ada).get(both.id).state is State.GENERATED
    memos.within(ada).add([turn("I quit my job at Acme.", 3)])
    assert memos.within(ada).get(both.id).state is State.ARCHIVED


def test_what_is_sold_by_its_name_is_no_longer_owned(memos: MemOS, ada: str) -> None:
    [car] = memos.within(ada).add("My car is called Gerald, a Ford Fiesta.")
    memos.within(ada).add("I sold Gerald.")
    assert memos.within(ada).get(car.id).state is State.ARCHIVED


@pytest.mark.parametrize(
    "text",
    [
        "I also have a dog.",
        "I used to live in Rome.",
        "I might move to Rome.",
        "Mira moved to Rome.",
        "I live in Oslo.",
    ],
)
def test_what_is_added_past_or_of_another_supersedes_nothing(memos: MemOS, ada: str, text: str) -> None:
    before = memos.within(ada).add([turn("I live in Oslo.", 1), turn("I have a cat.", 1)])
    memos.within(ada).add([turn(text, 2)])
    assert [memos.within(ada).get(cube.id).state for cube in before] == [State.GENERATED] * 2


def test_a_correction_does_not_reach_another_subject_or_user(memos: MemOS, ada: str, bob: str) -> None:
    [same_name] = memos.within(bob).add([turn("I live in Oslo.")])
    [other_name] = memos.within(ada).add([turn("I live in Oslo.", speaker="Eva")])
    memos.within(ada).add([turn("I now live in Rome.")])
    assert memos.within(bob).get(same_name.id).state is State.GENERATED
    assert memos.within(ada).get(other_name.id).state is State.GENERATED


def test_an_update_is_a_version_and_is_found_by_its_new_words(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add([turn("I live in Oslo.")])
    memos.within(ada).add("The submarine is yellow.")
    edited = memos.within(ada).update(cube.id, "My favourite colour is yellow.")
    assert (edited.id, edited.version, edited.text) == (cube.id, 2, "Tom: My favourite colour is yellow.")
    assert memos.within(ada).search("What is Tom's favourite colour?")[0].cube == edited
    versions = [event for event in memos.within(ada).history(cube.id) if event["event"] == "version"]
    assert [event["payload"]["text"] for event in versions] == ["Tom: I live in Oslo.", edited.text]


def test_history_is_json_in_time_order(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    memos.within(ada).update(cube.id, "Ada lives in Rome.")
    history = json.loads(json.dumps(memos.within(ada).history(cube.id)))
    assert [event["event"] for event in history] == ["version", "state", "version"]
    assert [event["at"] for event in history] == sorted(event["at"] for event in history)


# forgetting


def test_a_deleted_memory_is_gone(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    assert memos.within(ada).delete(cube.id) == [cube.id]
    assert found(memos, "Where does Ada live?", ada) == []
    own = memos.within(ada)
    for call in (own.get, own.history, own.delete):
        with pytest.raises(NotFound, match=cube.id):
            call(cube.id)


def test_a_deleted_memory_can_be_told_again(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    memos.within(ada).delete(cube.id)
    [again] = memos.within(ada).add("Ada lives in Oslo.")
    assert again.id != cube.id
    assert found(memos, "Where does Ada live?", ada) == ["Ada lives in Oslo."]


def test_what_a_message_says_to_forget_is_deleted(memos: MemOS, ada: str) -> None:
    memos.within(ada).add([turn("My sister is Eva."), turn("I live in Oslo.")])
    reply = memos.within(ada).chat("Forget where Tom lives.")
    assert reply.text == "Forgotten: Tom: I live in Oslo."
    assert texts(memos.within(ada).cubes()) == ["Tom: My sister is Eva."]


def test_when_several_could_be_meant_none_is_deleted(memos: MemOS, ada: str) -> None:
    memos.within(ada).add([turn("I ran 5 km in Oslo.", 1), turn("I ran 5 km in Oslo.", 2)])
    reply = memos.within(ada).chat("Forget that I ran 5 km in Oslo.")
    assert "Nothing was deleted" in reply.text
    assert all(cube.id[-8:] in reply.text for cube in memos.within(ada).cubes())
    assert len(memos.within(ada).cubes()) == 2


@pytest.mark.parametrize("request_", ["Forget Ada's favorite color.", "Forget what I said about my dog."])
def test_nothing_else_is_forgotten_in_place_of_what_is_not_there(memos: MemOS, ada: str, request_: str) -> None:
    memos.within(ada).add("Ada lives in Oslo.")
    reply = memos.within(ada).chat(request_)
    assert (reply.forgotten, texts(memos.within(ada).cubes())) == ((), ["Ada lives in Oslo."])


# other users


def test_a_memory_of_another_user_looks_absent(memos: MemOS, ada: str, bob: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    assert (
        memos.within(bob).cubes()
        == memos.within(bob).search("Where does Ada live?")
        == memos.within(bob).segments()
        == []
    )
    other = memos.within(bob)
    for call in (other.get, other.history, other.delete):
        with pytest.raises(NotFound, match=f"no cube {cube.id}"):
            call(cube.id)
    with pytest.raises(NotFound, match=f"no cube {cube.id}"):
        memos.within(bob).update(cube.id, "Ada lives nowhere.")
    assert memos.within(ada).get(cube.id) == cube


def test_what_another_user_keeps_takes_no_place_in_the_results(memos: MemOS, ada: str, bob: str) -> None:
    memos.within(bob).add([turn(f"Ada lives in Oslo, house {n}.") for n in range(12)])
    memos.within(ada).add("Ada lives in Oslo.")
    assert found(memos, "Where does Ada live?", ada) == ["Ada lives in Oslo."]


def test_two_users_may_keep_the_same_words(memos: MemOS, ada: str, bob: str) -> None:
    [hers], [his] = (memos.within(user).add("Ada lives in Oslo.") for user in (ada, bob))
    assert hers.id != his.id
    memos.within(bob).delete(his.id)
    assert memos.within(ada).cubes() == [hers]


def test_each_call_leaves_a_line_in_the_audit(memos: MemOS, ada: str, bob: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    with pytest.raises(NotFound):
        memos.within(bob).delete(cube.id)
    [wrote, denied] = memos.vault.audit_log.query(limit=2)
    assert (wrote.caller, wrote.action, wrote.allowed) == (ada, "write", True)
    assert (denied.caller, denied.action, denied.target, denied.allowed) == (bob, "delete", cube.id, False)


# topic groups


def test_memories_of_a_subject_are_a_segment_in_the_order_they_were_said(memos: MemOS, ada: str) -> None:
    memos.within(ada).add([turn("Eva lives in Lima.", 3), turn("I live in Oslo.", 2), turn("My sister is Eva.", 1)])
    assert {segment.key: texts(list(segment.cubes)) for segment in memos.within(ada).segments()} == {
        "Eva": ["Eva lives in Lima."],
        "Tom": ["Tom: My sister is Eva.", "Tom: I live in Oslo."],
    }


def test_a_long_segment_is_cut_in_time_order(memos: MemOS, ada: str) -> None:
    lines = [turn(f"I ran {n} km in Oslo along the river to the old mill by the sea.", n) for n in range(1, 29)]
    kept = memos.within(ada).add(lines)
    segments = memos.within(ada).segments()
    assert len(segments) > 1
    assert [cube for segment in segments for cube in segment.cubes] == kept
    limit = memos.config.scheduler.segment_tokens
    assert all(sum(memos.host.tokens(c.text) for c in segment.cubes) <= limit for segment in segments)


def test_what_is_superseded_or_deleted_is_in_no_segment(memos: MemOS, ada: str) -> None:
    [_, sister] = memos.within(ada).add([turn("I live in Oslo."), turn("My sister is Eva.")])
    [moved] = memos.within(ada).add([turn("I now live in Rome.")])
    memos.within(ada).delete(sister.id)
    assert [segment.cubes for segment in memos.within(ada).segments()] == [(moved,)]


def test_promoting_nothing_or_what_is_superseded_is_refused(memos: MemOS, ada: str) -> None:
    [old] = memos.within(ada).add([turn("I live in Oslo.")])
    memos.within(ada).add([turn("I now live in Rome.")])
    with pytest.raises(EmptyMemory, match="memos ls"):
        memos.within(ada).promote([], "activation")
    with pytest.raises(InputError, match="archived"):
        memos.within(ada).promote(old.id, "activation")


def test_all_of_this_left_the_vault_sound(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("Ada lives in Oslo.")
    assert problems_of(memos.vault) == []
    with MemVault(memos.vault.path) as reopened:
        assert reopened.get(cube.id) == cube
        assert reopened.jobs.all("running") == []


def test_a_fact_leads_to_the_next(tmp_path: Path) -> None:
    said = (
        "Mira's sister is Eva.",
        "Eva lives in Oslo.",
        "Tom lives in Rome.",
        "Kim lives in Paris.",
        "Tom has a dog.",
    )
    with MemOS(vault=tmp_path / "linked") as kernel:
        for text in said:
            kernel.add(text)
        found = kernel.search("Where does Mira's sister live?", top_k=2)
    assert {hit.cube.text for hit in found} == set(said[:2])
    assert [hit.why["linked"] for hit in sorted(found, key=lambda hit: hit.cube.id)] == [1, 0.5]


def test_what_the_question_asks_for_comes_before_what_others_say_of_themselves(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add([{"speaker": "User", "content": "I am now allergic to rye."}])
        for who, what in (("Corinna", "garlic"), ("Edgar", "barley"), ("Viola", "mustard")):
            memos.add(f"{who}'s allergy is {what}.")
        [first, *_] = memos.search("What is my allergy?")
        assert first.cube.text == "User: I am now allergic to rye." and first.why["states"] == 1
        assert "rye" in memos.ask("What is my allergy?", via="plaintext").text


def test_a_statement_that_is_deleted_takes_its_words_out_of_the_turn(memos: MemOS, ada: str) -> None:
    calls = memos.within(ada)
    oslo, sister, _ = calls.add([turn("I live in Oslo. My sister is Eva.", 1)])
    assert oslo.text == "Tom: I live in Oslo." and sister.sources == oslo.sources
    calls.delete(oslo.id)
    left = calls.memories()
    assert not any("Oslo" in c.text or "Oslo" in c.words for c in left)
    assert {"My sister is Eva."} == {c.payload.verbatim for c in left if isinstance(c.payload, Text)}
    assert calls.search("Who is my sister?")[0].cube.id in {c.id for c in left}


def test_a_process_that_ends_soon_loads_no_encoder_before_it_searches(tmp_path: Path) -> None:
    with MemOS(parts=Parts(vault=tmp_path, brief=True)) as kernel:
        kernel.add("Mira lives in Lisbon.")
        encoder = kernel.parts.embedder()
        assert isinstance(encoder, Embedder) and encoder._bert.if_made is None
        assert [hit.cube.text for hit in kernel.search("Where does Mira live?")] == ["Mira lives in Lisbon."]
        assert encoder._bert.if_made is not None


@pytest.mark.parametrize("half", ["\ud800", "I live in \udc00 Rome."])
def test_half_a_character_is_named(memos: MemOS, ada: str, half: str) -> None:
    calls = memos.within(ada)
    calls.add("I like jam.")
    for call in (
        lambda: calls.search(half),
        lambda: calls.log(target=half),
        lambda: calls.undo(half),
        lambda: calls.add("I like tea.", tags=[half]),
        lambda: calls.add("I like tea.", metadata={"a": [half]}),
        lambda: calls.add([{"role": "user", "content": "I like tea.", "id": half}]),
        lambda: memos.within(half).add("I like tea."),
    ):
        with pytest.raises(InputError, match="(?i)utf-8|half a character"):
            call()


def test_what_is_nested_without_end_is_no_metadata(memos: MemOS, ada: str) -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, deep[0][0], 10**5000):  # type: ignore[index]
        with pytest.raises(InputError):
            memos.within(ada).add("I like tea.", metadata={"a": value})
    shallow: dict[str, object] = {}
    for _ in range(300):
        shallow = {"a": shallow}
    with pytest.raises(InputError, match="is no JSON"):
        memos.within(ada).add("I like tea.", metadata=shallow)
