"""MemAgent on cases worked out by hand: what fills the memory, what is overwritten, and that it stays its size."""

from __future__ import annotations

from pathlib import Path

import pytest
from talk import conversation

from memos.plugins.policies import memagent


def test_a_full_memory_gives_up_the_least_important_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memagent, "MAX_LINES", 3)
    with conversation(tmp_path, "memagent") as talk:
        talk.say("Ann: My daughter Mira was born in Leeds in 2019.", "Bo: Nice.")
        talk.say("Ann: I moved to Oslo and started a new job at the hospital.")
        assert talk.texts("slot") == [
            "Ann: My daughter Mira was born in Leeds in 2019.",
            "Bo: Nice.",
            "Ann: I moved to Oslo and started a new job at the hospital.",
        ]
        talk.say("Ann: We walked along the river for an hour.")  # more than "Nice."
        assert "Bo: Nice." not in talk.texts() and len(talk.texts()) == 3
        talk.say("Ann: Okay, yes.")  # less than all that is there
        assert "Ann: Okay, yes." not in talk.texts() and len(talk.texts()) == 3
        talk.say("Ann: Oh, I moved to Oslo and started a new job at the hospital!")  # the same: it takes its place
        assert [text for text in talk.texts() if "Oslo" in text] == [
            "Ann: Oh, I moved to Oslo and started a new job at the hospital!"
        ]
        assert talk.find("Where was Mira born?", 1) == ["Ann: My daughter Mira was born in Leeds in 2019."]
        for cube in talk.made():  # each line tells the turn that it names
            [turn] = cube.sources
            assert cube.text.split(": ")[1] in talk.kernel.get(turn.id).text


def test_the_memory_stays_its_size_whatever_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memagent, "MAX_LINES", 4)
    with conversation(tmp_path, "memagent") as talk:
        for n in range(6):
            talk.say(f"Ann: {'Today we talked about the harbour. ' * 30}It was number {n}.", "Bo: 我不再喜欢咖啡了。")
        assert len(talk.texts()) <= 4 and max(map(len, talk.texts())) <= memagent.MAX_LINE_CHARS
