"""What a program may hand to `add` as a conversation: everything is kept as it was said, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import Memory
from memos.errors import InputError
from memos.infrastructure.vault.mem_vault import MemVault

Message = dict[str, Any]
NOON = "2026-03-04T12:00:00Z"


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(vault=tmp_path_factory.mktemp("vault")) as memory:
        yield memory


def turns(memory: Memory, user: str, run: str = "") -> list[Message]:
    """What was said, oldest first, with what is told of it; what was read in it left out."""
    every = [
        one
        for state in (None, "merged")
        for one in memory.get_all(user_id=user, run_id=run or None, state=state, limit=20_000)["results"]
    ]
    return sorted((one for one in every if one["message"] and one["kind"] != "passage"), key=lambda one: str(one["id"]))


def exchange(question: str, answer: str, **more: str) -> list[Message]:
    return [
        {"role": "user", "content": question, "time": NOON, **{name: f"{value}-q" for name, value in more.items()}},
        {"role": "assistant", "content": answer, "time": NOON, **{name: f"{value}-a" for name, value in more.items()}},
    ]


def test_the_same_call_twice_adds_nothing(memory: Memory, ada: str) -> None:
    said = exchange("Which bus goes to the pier?", "The 14, from the town hall.")
    memory.add(said, user_id=ada, run_id="monday")
    again = memory.add(said, user_id=ada, run_id="monday")
    assert [told["event"] for told in again["results"]] == ["NONE", "NONE"]
    assert len(turns(memory, ada)) == 2


@pytest.mark.parametrize("time", [NOON, None])
def test_messages_with_ids_are_known_by_them(memory: Memory, ada: str, time: str | None) -> None:
    said = [{**message, "time": time} for message in exchange("Try it again.", "It still fails.", id="1")]
    once_more = [{**message, "time": time} for message in exchange("Try it again.", "It still fails.", id="2")]
    for call in (said, once_more, said):
        memory.add(call, user_id=ada, run_id="monday")
    assert [one["message_id"] for one in turns(memory, ada, "monday")] == ["1-q", "1-a", "2-q", "2-a"]


def test_a_statement_that_is_made_twice_is_two_messages(memory: Memory, ada: str) -> None:
    for n in (1, 2, 2):
        memory.add([{"role": "user", "content": "I live in Oslo.", "id": n}], user_id=ada)
    assert sorted(one["message_id"] for one in turns(memory, ada)) == ["1", "2"]
    assert len(memory.search("Where do I live?", user_id=ada)["results"]) == 1


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"role": 3, "content": "Hi"}, 'a turn needs a "role" or a "speaker" as text'),
        ({"role": "user"}, '"content" is missing or not text'),
        ({"role": "user", "content": "Hi", "time": "yesterday"}, "'yesterday' is not ISO 8601"),
        ({"role": "user", "content": "Hi", "id": {"n": 1}}, 'the "id" of a message is text or a number, not dict'),
        ({"role": "user", "content": "a \ud800 half"}, "turns, turn 2: character 3 is half of one"),
    ],
)
def test_what_is_no_message_is_refused_by_its_place_and_nothing_is_kept(
    memory: Memory, ada: str, message: Message, named: str
) -> None:
    with pytest.raises(InputError) as refused:
        memory.add([{"role": "user", "content": "My boat is called Petrel."}, message], user_id=ada)
    assert named in str(refused.value)
    assert turns(memory, ada) == []


def test_a_message_without_a_role_is_the_users(memory: Memory, ada: str) -> None:
    memory.add([{"content": "My boat is called Petrel."}], user_id=ada)
    assert [(one["speaker"], one["role"]) for one in turns(memory, ada)] == [("User", "user")]


def test_a_time_without_a_zone_is_utc(memory: Memory, ada: str) -> None:
    memory.add([{"role": "user", "content": "The kiln is broken.", "time": "2026-03-04T12:00:00"}], user_id=ada)
    assert turns(memory, ada)[0]["said_at"] == "2026-03-04T12:00:00+00:00"


def test_two_speakers_of_one_name_are_told_apart_by_their_role(memory: Memory, ada: str) -> None:
    memory.add(
        [
            {"role": "user", "name": "Sam", "content": "I bake on Fridays."},
            {"role": "assistant", "name": "Sam", "content": "Rye bread needs a day."},
        ],
        user_id=ada,
    )
    assert [(one["speaker"], one["role"]) for one in turns(memory, ada)] == [("Sam", "user"), ("Sam", "assistant")]


@pytest.mark.parametrize("words", ["ᎣᏏᏲ ᏙᎯᏧ ᎠᎴ ᏩᏙ", "𒀭𒂗𒆤 𒈗 𒆳𒆳𒊏", "🜁🜂🜃🜄", "မင်္ဂလာပါ ရန်ကုန်"])
def test_a_script_that_nothing_reads_is_kept_and_found(memory: Memory, ada: str, words: str) -> None:
    memory.add([{"role": "user", "content": words}], user_id=ada)
    assert turns(memory, ada)[0]["message"] == words
    assert memory.search(words, user_id=ada)["results"][0]["message"] == words


@pytest.mark.slow
def test_a_turn_of_a_megabyte_is_kept_whole_and_found_by_any_part(memory: Memory, ada: str) -> None:
    parts = [f"Line {n}: nothing to see here." for n in range(30_000)]
    parts[21_000] = "The spare key hangs behind the barometer."
    text = "\n".join(parts)
    memory.add([{"role": "user", "content": text}], user_id=ada, infer=False)
    assert turns(memory, ada)[0]["message"] == text
    best = memory.search("Where is the spare key?", user_id=ada, limit=1)["results"][0]
    assert "behind the barometer" in best["memory"]


@pytest.mark.slow
def test_ten_thousand_messages_are_one_call(memory: Memory, ada: str) -> None:
    said = [{"role": "user", "content": f"Parcel {n} has left the depot.", "id": n} for n in range(10_000)]
    assert len(memory.add(said, user_id=ada, infer=False)["results"]) == 10_000
    assert [one["message"] for one in turns(memory, ada)] == [one["content"] for one in said]


def test_a_call_that_is_interrupted_leaves_nothing_and_can_be_made_again(
    memory: Memory, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [{"role": "user", "content": f"Row {n} of the hedge is cut."} for n in range(50)]
    given = iter(range(30))

    def interrupted(vault: MemVault) -> Any:
        if next(given, None) is None:
            raise KeyboardInterrupt
        return now(vault)

    now = MemVault.now
    with monkeypatch.context() as patched:
        patched.setattr(MemVault, "now", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.add(said, user_id=ada, infer=False)
    assert turns(memory, ada) == []
    memory.add(said, user_id=ada, infer=False)
    assert len(turns(memory, ada)) == 50


def test_what_was_added_before_a_restart_is_known_after_it(tmp_path: Path, ada: str) -> None:
    said = exchange("Who has the ladder?", "Piotr, until Sunday.", id="7")
    for _ in range(2):
        with Memory(vault=tmp_path / "vault") as memory:
            memory.add(said, user_id=ada)
            assert len(turns(memory, ada)) == 2
