"""MemoryBank on cases worked out by hand: pieces, summaries of days, the portrait, and what is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from talk import Conversation, conversation

RUN, SHOP = "Ann: I went for a run in the park.", "Ann: I bought bread and milk."
LIKES, CAT = "Ann: I love jazz and play the piano every night.", "Ann: My cat Tom was sick, so I took him to the vet."


def _three_days(talk: Conversation) -> None:
    talk.say(RUN, "Bo: Well done!")
    talk.say(LIKES, "Bo: Since when?")
    talk.say(CAT, "Bo: Poor Tom.", day=1)
    talk.say(SHOP, "Bo: Okay.", day=2)


def test_a_day_is_summed_up_as_the_next_begins(tmp_path: Path) -> None:
    with conversation(tmp_path, "memorybank") as talk:
        talk.say(RUN, "Bo: Well done!")
        talk.say(LIKES, "Bo: Since when?")
        assert talk.texts("exchange") == [f"{RUN}\nBo: Well done!", f"{LIKES}\nBo: Since when?"] and not talk.made(
            "day"
        )
        talk.say(CAT, "Bo: Poor Tom.", day=1)
        assert talk.texts("day") == talk.texts("events") == [f"{RUN}\n{LIKES}"]
        assert talk.texts("portrait") == [LIKES]  # a preference; a run is none
        talk.say(SHOP, "Bo: Okay.", day=2)
        assert talk.texts("day") == [f"{RUN}\n{LIKES}", CAT]
        assert talk.texts("events") == [f"{RUN}\n{LIKES}\n{CAT}"] and len(talk.texts("portrait")) == 1
        for cube in talk.made():  # a line names the turn that it tells
            lines = zip(cube.text.splitlines(), cube.sources, strict=True)
            assert all(line.split(": ")[1] in talk.kernel.get(turn.id).text for line, turn in lines)


def test_the_nearest_pieces_come_with_the_portrait(tmp_path: Path) -> None:
    with conversation(tmp_path, "memorybank") as talk:
        _three_days(talk)
        found = talk.find("Who was taken to the vet?", 8)
        assert CAT in found[0] and talk.texts("events")[0] in found[-2:] and talk.texts("portrait")[0] in found[-2:]


@pytest.mark.parametrize("system, forgets", [("memorybank", True), ("memorybank-forgetting", False)])
def test_what_is_not_used_is_forgotten(
    tmp_path: Path, later: Callable[[timedelta], None], system: str, forgets: bool
) -> None:
    with conversation(tmp_path, system) as talk:
        _three_days(talk)
        [used] = [cube for cube in talk.made("exchange") if CAT in cube.text]
        talk.memory.kernel.parts.vault.usage.record(
            [used.id], talk.memory.kernel.parts.vault.now()
        )  # as an answer does: strength 2
        later(timedelta(days=2))  # exp(-2) = .14
        talk.calls.curate()
        assert len(talk.made("exchange")) == 4
        later(timedelta(days=2))  # exp(-4) = .02 of what nobody used, exp(-4 / 2) = .14 of what was used
        talk.calls.curate()
        kept = talk.texts("exchange")
        assert any(CAT in text for text in kept) and any(SHOP in text for text in kept)  # used; not summed up yet
        assert any(RUN in text for text in kept) != forgets and bool(talk.made("portrait"))
        assert any("run in the park" in cube.text for cube in talk.kernel.memories() if not cube.sources)  # said
