"""MemGPT on cases worked out by hand: what is in core memory, what is paged out, evicted, archived and summarised."""

from __future__ import annotations

from pathlib import Path

import pytest
from looking import scores, turn
from talk import conversation

from memos.plugins.policies import memgpt
from memos.plugins.policies.memgpt import QUEUED

DRESS = "I bought a blue dress at the market in Leeds."


def test_core_memory_takes_what_lasts_and_replaces_what_changed(tmp_path: Path) -> None:
    with conversation(tmp_path, "memgpt") as talk:
        talk.say("user: My sister Mira married in Rome and bought a house in Italy.", "assistant: Great!")
        talk.say("user: Always answer in short sentences.", "assistant: Fine.")
        talk.say("user: What is for lunch?", "assistant: Soup.")
        blocks = {cube.header.tags[0]: cube for cube in talk.made("core")}
        assert blocks["persona"].text == "Always answer in short sentences."
        assert "Mira" in blocks["human"].text and "Soup" not in blocks["human"].text
        talk.say("user: My sister Mira no longer has the house in Italy.")
        [human] = [cube for cube in talk.made("core") if cube.header.tags == ("human",)]
        assert "no longer has the house" in human.text and "bought" not in human.text
        assert len(human.sources) == len(human.text.split("\n")) == 1


def test_a_line_for_which_a_block_has_no_room_is_paged_out_to_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memgpt, "BLOCK_CHARS", 90)
    with conversation(tmp_path, "memgpt") as talk:
        talk.say("Ann: My baby Tom was born in Leeds in 2019.")
        talk.say("Ann: My wedding with Paul was in the hospital of Rome in May 2024.")
        [core], [paged_out] = talk.made("core"), talk.made("archival")
        assert "wedding" in core.text and "baby" in paged_out.text
        assert [source.id for source in paged_out.sources] == [turn(talk, "My baby Tom was born in Leeds in 2019.")]


def test_a_queue_that_is_full_loses_its_older_half_to_the_summary_and_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memgpt, "QUEUE_CHARS", 220)
    with conversation(tmp_path, "memgpt") as talk:
        talk.say(f"Ann: {DRESS}", "Bo: How lovely, I like blue dresses.")
        talk.say("Ann: I have a garden with roses in it.", "Bo: Roses need a lot of water.")
        assert talk.made("digest") == [] and len(scores(talk, QUEUED)) == 4
        talk.say(
            "Ann: I want to see the mountains next summer, by bus.",
            "Bo: The mountains are cold, even in summer, take a coat.",
        )
        queue = scores(talk, QUEUED).keys()
        assert DRESS not in queue and any(words.startswith("The mountains are cold") for words in queue)
        [summary] = talk.made("digest")
        turns = [talk.kernel.get(source.id) for source in summary.sources]
        assert summary.text.split("\n") == [f"{one.header.speaker}: {one.words}" for one in turns]
        assert DRESS in summary.text and not queue & {one.words for one in turns}
        assert any("blue dress" in text for text in talk.texts("archival"))
        for n in range(4):
            talk.say(
                f"Ann: My train number {n} to the mountains was late by an hour again today.",
                "Bo: What a pity, trains!",
            )
        [again] = talk.made("digest")  # recursive: of the summary before and what left since
        assert len(again.text.split("\n")) == len(again.sources) <= 8 and len(again.sources) > len(summary.sources)


def test_a_question_sees_a_page_of_what_is_found_and_then_the_main_context(tmp_path: Path) -> None:
    with conversation(tmp_path, "memgpt") as talk:
        talk.say("Ann: I was born in Leeds and graduated there in 2001.", "Bo: Nice.")
        for what in ("apples", "pears", "plums", "cherries", "grapes", "lemons"):
            talk.say(f"Ann: There were {what} at the market.", "Bo: Yes.")
        found = talk.find("What was at the market?", 12)
        assert all("market" in text for text in found[:5]) and "born in Leeds" in found[5]
    with conversation(tmp_path / "without", "memgpt-core") as talk:
        talk.say("Ann: I was born in Leeds and graduated there in 2001.", "Bo: Nice.")
        assert talk.made("core") == []


def test_odd_turns_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with conversation(tmp_path, "memgpt") as talk:
        talk.say("Ann: 我住在上海，我在医院工作。")
        talk.say("Ann: " + "long words " * 1_800, "Bo: ?")
        assert all(len(cube.text) < 1_000 for cube in talk.made())
        assert "changed nothing" not in caplog.text
