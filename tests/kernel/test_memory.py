"""A kernel remembers, finds, corrects and forgets. The real vault, reader and embedder; no answer of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.cube import MemCube, Probe, State
from memos.errors import EmptyMemory, InputError, NotFound
from memos.infrastructure.vault.mem_vault import MemVault


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("kernel") / "vault") as kernel:
        yield kernel


def texts(cubes: list[MemCube]) -> list[str]:
    return [cube.text for cube in cubes]


def found(memos: MemOS, query: str, user: str) -> list[str]:
    return [hit.cube.text for hit in memos.search(query, user=user)]


def moves(memos: MemOS, id: str, user: str) -> list[str]:
    return [f"{e['state']}: {e['why']}" for e in memos.history(id, user=user) if e["event"] == "state"]


def turn(content: str, day: int = 0, speaker: str = "Tom") -> dict[str, str]:
    said = {"time": f"2025-03-{day:02}T09:00:00"} if day else {}
    return {"speaker": speaker, "content": content, **said}


# adding and finding


def test_a_statement_is_found_by_its_meaning(memos: MemOS, ada: str) -> None:
    [tea, _] = [memos.add(text, user=ada)[0] for text in ("Ada drinks green tea.", "The car is in the garage.")]
    best = memos.search("Which beverage does Ada like?", user=ada)[0]
    assert (best.cube, memos.get(tea.id, user=ada)) == (tea, tea)
    assert best.score > 0.3


def test_every_subject_of_a_crowd_is_found_first(memos: MemOS, ada: str) -> None:
    cities = {"Ann": "Oslo", "Ben": "Rome", "Cleo": "Lima", "Dan": "Cairo", "Eva": "Delhi", "Finn": "Quito"}
    cities |= {"Gus": "Tokyo", "Hana": "Bern", "Ivo": "Kyiv", "Jana": "Riga", "Kai": "Turin", "Lea": "Porto"}
    memos.add([turn(f"{name} lives in {city}.") for name, city in cities.items()], user=ada)
    first = {name: found(memos, f"Where does {name} live?", ada)[0] for name in cities}
    assert first == {name: f"{name} lives in {city}." for name, city in cities.items()}


def test_no_more_is_found_than_asked_for(memos: MemOS, ada: str) -> None:
    for n in range(4):
        memos.add(f"Ada owns {n + 2} cats.", user=ada)
    assert len(memos.search("How many cats does Ada own?", top_k=3, user=ada)) == 3


@pytest.mark.parametrize("words", ["", "  "])
def test_nothing_cannot_be_remembered_or_looked_for(memos: MemOS, ada: str, words: str) -> None:
    with pytest.raises(InputError, match="empty"):
        memos.add(words, user=ada)
    with pytest.raises(InputError, match="empty"):
        memos.search(words, user=ada)
    assert memos.cubes(user=ada) == []


def test_turns_are_kept_with_speaker_and_time_and_without_talk(memos: MemOS, ada: str) -> None:
    said = [turn("I live in Oslo.", 1), turn("Nice weather today!", 1), turn("Where do you live?", 1)]
    [cube] = memos.add([*said, {"role": "assistant", "content": "I live in a computer."}], user=ada)
    assert cube.text == "Tom: I live in Oslo."
    assert (cube.header.speaker, str(cube.header.said)) == ("Tom", "2025-03-01 09:00:00+00:00")


def test_a_file_is_remembered_by_its_name(memos: MemOS, ada: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(json.dumps(turn(text)) for text in ("I live in Oslo.", "My sister is Eva.")))
    cubes = memos.add(file, user=ada)
    assert {cube.header.origin for cube in cubes} == {str(file)}
    assert "Tom: I live in Oslo." in texts(cubes)


def test_a_conversation_with_a_bad_turn_leaves_nothing(memos: MemOS, ada: str) -> None:
    with pytest.raises(InputError, match="turn 2"):
        memos.add([turn("I live in Oslo."), {"speaker": "Tom"}], user=ada)
    assert memos.cubes(user=ada) == []


@pytest.mark.parametrize("days", [(0, 0), (1, 2)], ids=["without times", "with times"])
def test_what_was_added_twice_is_there_once(memos: MemOS, ada: str, days: tuple[int, int]) -> None:
    talk = [turn("I live in Oslo.", days[0]), turn("My sister is Eva.", days[1])]
    first = memos.add(talk, user=ada)
    again = memos.add(talk, user=ada)
    assert [c.id for c in again] == [c.id for c in first] == [c.id for c in memos.cubes(user=ada)]
    # of the same time it is the same statement; of no known time it was told again
    assert [c.usage.repeats for c in again] == [0 if any(days) else 1] * 2


def test_the_same_words_at_another_time_are_another_memory(memos: MemOS, ada: str) -> None:
    memos.add([turn("I ran 5 km in Oslo.", 1), turn("I ran 5 km in Oslo.", 2)], user=ada)
    assert len(memos.cubes(user=ada)) == 2


def test_adding_again_does_not_bring_back_what_was_superseded(memos: MemOS, ada: str) -> None:
    talk = [turn("I live in Oslo.", 1), turn("I now live in Rome.", 2)]
    memos.add(talk, user=ada)
    before = memos.cubes(user=ada)
    memos.add(talk, user=ada)
    assert memos.cubes(user=ada) == before


def test_what_was_superseded_can_be_said_anew(memos: MemOS, ada: str) -> None:
    for text in ("Tom lives in Oslo.", "Tom now lives in Rome.", "Tom lives in Oslo."):
        [cube] = memos.add(text, user=ada)
    assert cube.state is State.GENERATED


def test_probes_given_later_are_kept(memos: MemOS, ada: str) -> None:
    """NoProbes says to add the statements with probes: that must do for one that is remembered already."""
    probe = Probe(question="When does the zorb hum?", answer="dusk")
    memos.add("The zorb hums at dusk.", user=ada)
    [cube] = memos.add("The zorb hums at dusk.", user=ada, probes=[probe])
    assert cube.payload.type == "text" and cube.payload.probes == (probe,)
    assert len(memos.cubes(user=ada)) == 1


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
    [home, sister] = memos.add([turn("I live in Oslo."), turn("My sister is Eva.")], user=ada)
    [moved] = memos.add([turn("Actually, I now live in Rome.")], user=ada)
    assert memos.get(home.id, user=ada).state is State.ARCHIVED
    assert moves(memos, home.id, ada)[-1] == f"archived: superseded by {moved.id}"
    assert memos.get(sister.id, user=ada).state is State.GENERATED
    assert "Tom: I live in Oslo." not in found(memos, "Where does Tom live?", ada)


def test_a_correction_in_a_chat_supersedes(memos: MemOS, ada: str) -> None:
    memos.chat("I live in Oslo.", user=ada)
    reply = memos.chat("Actually, I live in Rome.", user=ada)
    assert reply.text.startswith("Noted:")
    assert [cube for cube in memos.cubes(user=ada) if cube.state is not State.ARCHIVED] == list(reply.remembered)


def test_a_correction_does_not_reach_what_was_said_later(memos: MemOS, ada: str) -> None:
    [late] = memos.add([turn("I live in Lima.", 9)], user=ada)
    memos.add([turn("I now live in Rome.", 2)], user=ada)
    assert memos.get(late.id, user=ada).state is State.GENERATED


def test_what_arrives_late_is_superseded_by_what_was_said_after_it(memos: MemOS, ada: str) -> None:
    [late] = memos.add([turn("I now live in Lima.", 9)], user=ada)
    [early] = memos.add([turn("I live in Rome.", 2)], user=ada)
    assert early.state is State.ARCHIVED
    assert moves(memos, early.id, ada)[-1] == f"archived: superseded by {late.id}"


def test_a_statement_goes_when_all_that_it_says_is_replaced(memos: MemOS, ada: str) -> None:
    [both] = memos.add([turn("I live in Oslo and I work for Acme.", 1)], user=ada)
    memos.add([turn("I moved to Rome.", 2)], user=ada)
    assert memos.get(both.id, user=ada).state is State.GENERATED
    memos.add([turn("I quit my job at Acme.", 3)], user=ada)
    assert memos.get(both.id, user=ada).state is State.ARCHIVED


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
    before = memos.add([turn("I live in Oslo.", 1), turn("I have a cat.", 1)], user=ada)
    memos.add([turn(text, 2)], user=ada)
    assert [memos.get(cube.id, user=ada).state for cube in before] == [State.GENERATED] * 2


def test_a_correction_does_not_reach_another_subject_or_user(memos: MemOS, ada: str, bob: str) -> None:
    [same_name] = memos.add([turn("I live in Oslo.")], user=bob)
    [other_name] = memos.add([turn("I live in Oslo.", speaker="Eva")], user=ada)
    memos.add([turn("I now live in Rome.")], user=ada)
    assert memos.get(same_name.id, user=bob).state is State.GENERATED
    assert memos.get(other_name.id, user=ada).state is State.GENERATED


def test_an_update_is_a_version_and_is_found_by_its_new_words(memos: MemOS, ada: str) -> None:
    [cube] = memos.add([turn("I live in Oslo.")], user=ada)
    memos.add("The submarine is yellow.", user=ada)
    edited = memos.update(cube.id, "My favourite colour is yellow.", user=ada)
    assert (edited.id, edited.version, edited.text) == (cube.id, 2, "Tom: My favourite colour is yellow.")
    assert memos.search("What is Tom's favourite colour?", user=ada)[0].cube == edited
    versions = [event for event in memos.history(cube.id, user=ada) if event["event"] == "version"]
    assert [event["payload"]["text"] for event in versions] == ["Tom: I live in Oslo.", edited.text]


def test_history_is_json_in_time_order(memos: MemOS, ada: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    memos.update(cube.id, "Ada lives in Rome.", user=ada)
    history = json.loads(json.dumps(memos.history(cube.id, user=ada)))
    assert [event["event"] for event in history] == ["version", "state", "version"]
    assert [event["at"] for event in history] == sorted(event["at"] for event in history)


# forgetting


def test_a_deleted_memory_is_gone(memos: MemOS, ada: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    assert memos.delete(cube.id, user=ada) == [cube.id]
    assert found(memos, "Where does Ada live?", ada) == []
    for call in (memos.get, memos.history, memos.delete):
        with pytest.raises(NotFound, match=cube.id):
            call(cube.id, user=ada)


def test_a_deleted_memory_can_be_told_again(memos: MemOS, ada: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    memos.delete(cube.id, user=ada)
    [again] = memos.add("Ada lives in Oslo.", user=ada)
    assert again.id != cube.id
    assert found(memos, "Where does Ada live?", ada) == ["Ada lives in Oslo."]


def test_what_a_message_says_to_forget_is_deleted(memos: MemOS, ada: str) -> None:
    memos.add([turn("My sister is Eva."), turn("I live in Oslo.")], user=ada)
    reply = memos.chat("Forget where Tom lives.", user=ada)
    assert reply.text == "Forgotten: Tom: I live in Oslo."
    assert texts(memos.cubes(user=ada)) == ["Tom: My sister is Eva."]


def test_when_several_could_be_meant_none_is_deleted(memos: MemOS, ada: str) -> None:
    memos.add([turn("I ran 5 km in Oslo.", 1), turn("I ran 5 km in Oslo.", 2)], user=ada)
    reply = memos.chat("Forget that I ran 5 km in Oslo.", user=ada)
    assert "Nothing was deleted" in reply.text
    assert all(cube.id[-8:] in reply.text for cube in memos.cubes(user=ada))
    assert len(memos.cubes(user=ada)) == 2


@pytest.mark.parametrize("request_", ["Forget Ada's favorite color.", "Forget what I said about my dog."])
def test_nothing_else_is_forgotten_in_place_of_what_is_not_there(memos: MemOS, ada: str, request_: str) -> None:
    memos.add("Ada lives in Oslo.", user=ada)
    reply = memos.chat(request_, user=ada)
    assert (reply.forgotten, texts(memos.cubes(user=ada))) == ((), ["Ada lives in Oslo."])


# other users


def test_a_memory_of_another_user_looks_absent(memos: MemOS, ada: str, bob: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    assert memos.cubes(user=bob) == memos.search("Where does Ada live?", user=bob) == memos.segments(user=bob) == []
    for call in (memos.get, memos.history, memos.delete):
        with pytest.raises(NotFound, match=f"no cube {cube.id}"):
            call(cube.id, user=bob)
    with pytest.raises(NotFound, match=f"no cube {cube.id}"):
        memos.update(cube.id, "Ada lives nowhere.", user=bob)
    assert memos.get(cube.id, user=ada) == cube


def test_what_another_user_keeps_takes_no_place_in_the_results(memos: MemOS, ada: str, bob: str) -> None:
    memos.add([turn(f"Ada lives in Oslo, house {n}.") for n in range(12)], user=bob)
    memos.add("Ada lives in Oslo.", user=ada)
    assert found(memos, "Where does Ada live?", ada) == ["Ada lives in Oslo."]


def test_two_users_may_keep_the_same_words(memos: MemOS, ada: str, bob: str) -> None:
    [hers], [his] = (memos.add("Ada lives in Oslo.", user=user) for user in (ada, bob))
    assert hers.id != his.id
    memos.delete(his.id, user=bob)
    assert memos.cubes(user=ada) == [hers]


def test_each_call_leaves_a_line_in_the_audit(memos: MemOS, ada: str, bob: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    with pytest.raises(NotFound):
        memos.delete(cube.id, user=bob)
    [wrote, denied] = memos.vault.audit_rows(2)
    assert (wrote.caller, wrote.action, wrote.allowed) == (ada, "write", True)
    assert (denied.caller, denied.action, denied.target, denied.allowed) == (bob, "delete", cube.id, False)


# topic groups


def test_memories_of_a_subject_are_a_segment_in_the_order_they_were_said(memos: MemOS, ada: str) -> None:
    memos.add([turn("Eva lives in Lima.", 3), turn("I live in Oslo.", 2), turn("My sister is Eva.", 1)], user=ada)
    assert {segment.key: texts(list(segment.cubes)) for segment in memos.segments(user=ada)} == {
        "Eva": ["Eva lives in Lima."],
        "Tom": ["Tom: My sister is Eva.", "Tom: I live in Oslo."],
    }


def test_a_long_segment_is_cut_in_time_order(memos: MemOS, ada: str) -> None:
    lines = [turn(f"I ran {n} km in Oslo.", n) for n in range(1, 29)]
    kept = memos.add(lines, user=ada)
    segments = memos.segments(user=ada)
    assert len(segments) > 1
    assert [cube for segment in segments for cube in segment.cubes] == kept
    limit = memos.config.scheduler.segment_tokens
    assert all(sum(memos.host.tokens(c.text) for c in segment.cubes) <= limit for segment in segments)


def test_what_is_superseded_or_deleted_is_in_no_segment(memos: MemOS, ada: str) -> None:
    [_, sister] = memos.add([turn("I live in Oslo."), turn("My sister is Eva.")], user=ada)
    [moved] = memos.add([turn("I now live in Rome.")], user=ada)
    memos.delete(sister.id, user=ada)
    assert [segment.cubes for segment in memos.segments(user=ada)] == [(moved,)]


def test_promoting_nothing_or_what_is_superseded_is_refused(memos: MemOS, ada: str) -> None:
    [old] = memos.add([turn("I live in Oslo.")], user=ada)
    memos.add([turn("I now live in Rome.")], user=ada)
    with pytest.raises(EmptyMemory, match="memos ls"):
        memos.promote([], "activation", user=ada)
    with pytest.raises(InputError, match="archived"):
        memos.promote(old.id, "activation", user=ada)


def test_all_of_this_left_the_vault_sound(memos: MemOS, ada: str) -> None:
    [cube] = memos.add("Ada lives in Oslo.", user=ada)
    assert memos.vault.check() == []
    with MemVault(memos.vault.path) as reopened:
        assert reopened.get(cube.id) == cube
        assert reopened.jobs("running") == []


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
