"""Turns that the rules leave, read later by the tagger: what they state, and what they put out of force."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from memos import Memory, MemOS
from memos.cube import State
from memos.errors import VaultError
from memos.kernel import unread
from memos.kernel.wiring import Parts
from memos.plugins.care.check import problems_of


def told(texts: list[str], **of_each: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": text, "time": f"2026-03-{n:02}T10:00:00Z"} | of_each
        for n, text in enumerate(texts, start=1)
    ]


def found(memos: MemOS, question: str) -> list[str]:
    return [hit.cube.text for hit in memos.search(question)]


TURNS = ["been living in leeds for ages", "lol no way", "moved to southampton last week!"]


def test_what_holds_now_takes_the_place_of_what_did(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS))
        memos.tick()
        first, *_ = found(memos, "where do i live")
        assert "southampton" in first and "2026-02-23" in first
        assert not any("leeds" in text for text in found(memos, "where do i live"))
        old = [cube for cube in memos.cubes() if "leeds" in cube.text]
        assert old and {cube.state for cube in old} == {State.ARCHIVED}
        assert any("superseded by" in event.get("why", "") for event in memos.history(old[0].id))


def test_turns_are_read_while_nobody_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "QUIET_S", 0.2)
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS))
        until = time.monotonic() + 30
        while memos.vault.jobs.all("queued") or memos.vault.jobs.all("running"):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "southampton" in found(memos, "where do i live")[0]


def test_what_was_left_when_the_vault_was_closed_is_read_when_it_is_open_again(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS))
    with MemOS(vault=tmp_path) as memos:
        assert len(memos.vault.jobs.all("queued")) == 1
        memos.tick()
        assert memos.vault.jobs.all("queued") == []
        assert "southampton" in found(memos, "where do i live")[0]
        memos.add([{"role": "user", "content": "hiya", "time": "2026-04-01T10:00:00Z"}])
        memos.tick()  # a second job begins where the first has ended
        assert len([c for c in memos.cubes() if "southampton" in c.text and c.header.kind == "fact"]) == 1
        assert problems_of(memos.vault) == []


def test_reading_twice_makes_nothing_twice(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS))
        memos.tick()
        before = {(cube.id, cube.version, cube.state) for cube in memos.cubes()}
        memos.services.unread.read_from(min(cube.id for cube in memos.cubes()))
        memos.tick()
        assert {(cube.id, cube.version, cube.state) for cube in memos.cubes()} == before


def test_of_an_assistants_turn_nothing_is_read_of_the_user(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(["moved to southampton last week!"], role="assistant") + told(["lol ok"]))
        memos.tick()
        assert not [cube for cube in memos.cubes() if cube.header.kind == "fact"]


def test_without_infer_nothing_is_read_later(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS), infer=False)
        assert memos.vault.jobs.all("queued") == []


def test_one_users_turns_end_nothing_of_another(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.within("ann").add(told(TURNS[:1]))
        memos.within("bob").add(told(TURNS[2:]))
        memos.within("ann").tick()
        assert any("leeds" in hit.cube.text for hit in memos.within("ann").search("where do i live"))


def test_in_one_conversation_one_goes_on_with_the_other(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(["i go to yoga twice a week"]) + told(["quit yoga, it bored me"]))  # on the same day
        memos.services.unread.finish()
        near = [memos.services.unread._near(cube) for cube in memos.cubes() if cube.header.kind == "episode"]
        assert near == [[], []]


def test_a_long_turn_is_not_put_out_of_force_by_one_word_in_it(tmp_path: Path) -> None:
    long = TURNS[0] + ", and the garden is full of foxes that keep everybody awake until three in the morning, honestly"
    with MemOS(vault=tmp_path) as memos:
        memos.add(told([long, *TURNS[1:]]))
        memos.tick()
        [turn] = [cube for cube in memos.cubes() if cube.header.kind == "episode" and "foxes" in cube.text]
        assert turn.state is not State.ARCHIVED


def test_what_was_read_goes_with_its_turn(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS[2:]))
        memos.tick()
        turn = next(cube for cube in memos.cubes() if cube.header.kind == "episode")
        memos.delete(turn.id)
        assert not [cube for cube in memos.cubes() if "southampton" in cube.text]


def test_through_the_memory_api(tmp_path: Path) -> None:
    with Memory(vault=tmp_path) as memory:
        memory.add(told(TURNS), user_id="tom")
        memory.kernel.tick()
        results = memory.search("where do i live", user_id="tom")["results"]
        assert "southampton" in results[0]["memory"]


@pytest.mark.parametrize("door", ["add", "chat"])
def test_what_is_said_beside_conversations_is_read_too(tmp_path: Path, door: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in ("i live in leeds", "moved to southampton last week!"):
            memos.add(text) if door == "add" else memos.chat(text)
        memos.tick()
        first, *others = found(memos, "where do i live?")
        assert "moved to southampton last week (20" in first and not any("leeds" in text for text in others)
        told_as = memos.chat("where do i live?").text.splitlines()[0]
        assert told_as.startswith("You said: “moved to southampton last week") and "(" not in told_as
        assert problems_of(memos.vault) == []


def test_a_statement_without_infer_and_a_documents_are_not_read_later(tmp_path: Path) -> None:
    (notes := tmp_path / "notes.md").write_text("moved to southampton last week!")
    with MemOS(vault=tmp_path / "vault") as memos:
        memos.add("moved to southampton last week!", infer=False)
        memos.add(notes)
        assert memos.vault.jobs.all("queued") == []


def test_what_held_before_is_found_when_one_asks_for_it(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        for turn in told(["i live in leeds", "moved to york yesterday", "moved to southampton last week!"]):
            memos.add([turn])
            memos.tick()
        asked, towns = "where did i live before?", ["leeds", "york", "southampton"]
        hits = memos.search(asked)
        assert [town for hit in hits for town in towns if town in hit.cube.text] == towns
        assert [hit.cube.state for hit in hits[:2]] == [State.ARCHIVED] * 2
        assert [hit.cube.id for hit in memos.search(asked, top_k=1)] == [hits[0].cube.id]
        quotes = ["“i live in leeds”", "“moved to york yesterday”", "“moved to southampton last week!”"]
        assert [line.split(": ")[1] for line in memos.chat(asked).text.splitlines()[:3]] == quotes
        assert {hit.cube.id for hit in hits} <= {cube.id for cube in memos.ask(asked).admission.cubes}  # a model reads
        assert len(found(memos, "where do i live?")) == len(memos.search(asked, kinds=["fact", "episode"])) == 1
        assert memos.within("bob").search(asked) == []


def test_what_held_at_a_time_is_found_before_what_holds_now(tmp_path: Path) -> None:
    said = {
        "2025-03-01": "i live in leeds",
        "2026-01-10": "just moved to york",
        "2026-03-01": "moved to hull last week!",
    }
    with MemOS(vault=tmp_path) as memos:
        for day, text in said.items():
            memos.add([{"role": "user", "content": text, "time": f"{day}T10:00:00Z"}])
            memos.tick()
        asked = {
            "in summer 2025": "leeds",
            "in 2025": "leeds",
            "in January 2026": "leeds york",
            "in February 2026": "york",
        }
        for when, towns in asked.items():
            hits = [hit.cube.text for hit in memos.search(f"where did i live {when}?")]
            assert [town for text in hits for town in ("leeds", "york", "hull") if town in text] == [
                *towns.split(),
                "hull",
            ]
            quotes = memos.chat(f"where did i live {when}?").text
            assert all(town in quotes for town in towns.split()), quotes
        assert memos.within("bob").search("where did i live in 2025?") == []


def test_what_replaced_the_answer_answers(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(["I work at Siemens.", "I started at Bosch on Monday!"]))
        memos.tick()
        asked = {"Where do I work?": "Bosch", "Where did I work before?": "Siemens"}
        assert all(name in memos.chat(question).text.splitlines()[0] for question, name in asked.items())


def test_who_asks_in_the_words_of_what_was_replaced_is_told_what_replaced_it(tmp_path: Path) -> None:
    asked = "what car do i drive?"
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(["i drive a red fiesta", "sold the fiesta, got a wee yaris instead"]))
        memos.tick()
        [yaris] = [hit for hit in memos.search(asked) if "yaris" in hit.cube.text]
        assert "yaris" in memos.chat(asked).text
        assert yaris.cube.id in {cube.id for cube in memos.ask(asked).admission.cubes}
        # a stranger who is shown the one and not the other finds the one by its own words, and so does everybody once
        # the other is gone
        memos.grant(yaris.cube.id, "bob", "reader")
        [of_bob] = [hit for hit in memos.within("bob").search(asked) if "yaris" in hit.cube.text]
        assert of_bob.why["tokens"] < yaris.why["tokens"] and of_bob.why["near"] < yaris.why["near"]
        [fiesta] = [cube for cube in memos.cubes() if cube.state is State.ARCHIVED]
        memos.delete(fiesta.id)
        [left] = [hit for hit in memos.search(asked) if "yaris" in hit.cube.text]
        assert left.why["tokens"] == of_bob.why["tokens"] and left.why["near"] == of_bob.why["near"]


def test_what_is_replaced_again_and_again_is_found_by_all_of_it(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        fiesta, yaris, tram = memos.add(told(["i drive a red fiesta", "the yaris is lovely", "so glad of the tram"]))
        memos.search("ready")
        alone = {hit.cube.id: hit.why["tokens"] for hit in memos.search("what car do i drive?")}
        for old, new in ((fiesta, yaris), (yaris, tram)):
            memos.parts.lifecycle.supersede(old.id, new.id)
        [hit] = memos.search("what car do i drive?")
        assert hit.cube.id == tram.id and hit.why["tokens"] == alone[fiesta.id] > alone[tram.id]
        memos.parts.lifecycle.reinstate(yaris.id)
        now = {hit.cube.id: hit.why["tokens"] for hit in memos.search("what car do i drive?")}
        assert now == {yaris.id: alone[fiesta.id], tram.id: alone[tram.id]}


def test_what_may_have_changed_an_answer_is_quoted_beside_it(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(["told Tom 2800 for the table", "Tom likes jazz", "told Tom it has to be 3200"]))
        memos.tick()
        quotes = memos.chat("how much is Toms table?").text.splitlines()
        assert "2800" in quotes[0] and any("3200" in line for line in quotes[1:])


def test_what_is_told_in_a_chat_is_read_before_it_is_acknowledged(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in ("i live in leeds", "no longer vegan", "moved to hull!"):
            assert memos.chat(text).text == f"Noted: User: {text}" + ("." if text[-1] != "!" else "")
        assert memos.vault.jobs.all("queued") == []
        assert [cube.state for cube in memos.cubes() if "leeds" in cube.text] == [State.ARCHIVED]
        assert "hull" in memos.chat("where do i live?").text


def test_a_chat_does_not_wait_for_much_that_others_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.within("bob").add(told([f"got bike number {n}" for n in range(1, 9)]))
        memos.chat("moved to hull!")
        assert len(memos.vault.jobs.all("queued")) + len(memos.vault.jobs.all("running")) == 1


def test_a_vault_that_cannot_be_read_at_the_end_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memos = MemOS(parts=Parts(vault=tmp_path, brief=True))
    memos.add(told(TURNS))

    def gone(*_: object) -> list[object]:
        raise VaultError("the database went away")

    monkeypatch.setattr(memos.vault.statements, "texts_after", gone)
    memos.close()
    with MemOS(vault=tmp_path) as again:
        assert len(again.vault.jobs.all("queued")) == 1 and problems_of(again.vault) == []
