"""LIGHT on cases worked out by hand: what is written down, summed up, filtered, and what was said last."""

from __future__ import annotations

from pathlib import Path

import pytest
from talk import conversation

from memos.plugins.policies import light

SAID = (
    ("Ann: From now on always answer me in Dutch.", "Bo: Fine."),
    ("Ann: Good morning!", "Bo: Hello there, how are you?"),
    ("Ann: My daughter was born on 4 May in Utrecht Hospital.", "Bo: Wonderful news!"),
    ("Ann: The weather is nice.", "Bo: It is, yes."),
    ("Ann: We moved to a bigger house in Leiden last week.", "Bo: I got hired by Philips in Eindhoven."),
)
NOTES = [
    "Ann: From now on always answer me in Dutch.",
    "Ann: My daughter was born on 4 May in Utrecht Hospital. (2024-05-04)",
    "Ann: We moved to a bigger house in Leiden last week. (2025-02-24/2025-03-02)\n"
    "Bo: I got hired by Philips in Eindhoven.",
]


def test_what_is_salient_is_written_down_by_a_line_for_each_turn(tmp_path: Path) -> None:
    with conversation(tmp_path, "light") as talk:
        for exchange in SAID:
            talk.say(*exchange)
        assert talk.texts("scratchpad") == NOTES
        last = talk.made("scratchpad")[-1]
        assert [talk.kernel.get(s.id).words[:5] for s in last.sources] == ["We mo", "I got"]


def test_a_question_finds_turns_then_the_notes_that_bear_on_it_then_what_was_said_last(tmp_path: Path) -> None:
    with conversation(tmp_path, "light") as talk:
        for exchange in SAID:
            talk.say(*exchange)
        *turns, note, last = talk.kernel.search("When was the daughter born?", top_k=8)
        assert "daughter was born" in turns[0].cube.text and len(turns) == 6
        assert note.cube.text == NOTES[1]  # the others have nothing to do with the question
        assert last.why == {"working": 1.0} and last.cube.id not in {hit.cube.id for hit in turns}


@pytest.mark.parametrize("less, notes, working", [("light-scratchpad", False, True), ("light-working", True, False)])
def test_it_does_without_one_of_its_memories(tmp_path: Path, less: str, notes: bool, working: bool) -> None:
    with conversation(tmp_path, less) as talk:
        for exchange in SAID:
            talk.say(*exchange)
        assert bool(talk.texts("scratchpad")) is notes
        why = [hit.why for hit in talk.kernel.search("When was the daughter born?", top_k=8)]
        assert any("working" in signals for signals in why) is working


def test_a_scratchpad_that_is_too_long_is_summed_up_by_what_weighs_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light, "ROOM", 200)
    with conversation(tmp_path, "light") as talk:
        for exchange in SAID:
            talk.say(*exchange)
        assert talk.texts("scratchpad") == [NOTES[2], NOTES[1]]  # of the older two, the birth outweighs the wish
        assert len(talk.made("scratchpad")[1].sources) == 1


def test_what_is_odd_is_kept_within_bounds(tmp_path: Path) -> None:
    with conversation(tmp_path, "light") as talk:
        for odd in (
            "我2020年结婚，在上海买了房子，开始了新的工作。",
            "So it goes on and on. " * 900,
            "?!",
            "always 1 " * 900,
        ):
            talk.say(f"Ann: {odd}")
        assert max(map(len, talk.texts("scratchpad"))) <= 1_300
        assert any("上海" in text for text in talk.find("上海", 5))
