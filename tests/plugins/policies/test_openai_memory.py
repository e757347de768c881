"""ChatGPT's memory on cases worked out by hand: what is saved, updated and forgotten; the profile; chat history."""

from __future__ import annotations

from pathlib import Path

import pytest
from looking import by, scores
from talk import conversation

from memos.plugins.policies import openai_memory


def test_what_one_asks_for_is_saved_updated_and_forgotten(tmp_path: Path) -> None:
    with conversation(tmp_path, "openai-memory") as talk:
        talk.say("user: Remember that my dog is called Rex.", "assistant: I will.")
        talk.say("user: What a day.", "assistant: Indeed, remember that tomorrow is another.")
        assert talk.texts("saved") == ["User: my dog is called Rex."]
        talk.say("user: Remember that my dog is now called Max.", "assistant: Fine.")
        assert talk.texts("saved") == ["User: my dog is now called Max."]
        talk.say("user: I always forget the name of my dog.", "assistant: It is Max.")
        assert any("Max" in text for text in talk.texts("saved"))
        talk.say("user: Please forget that my dog is called Max.", "assistant: Done.")
        assert not any("called Max" in text for text in talk.texts("saved"))


def test_what_lasts_is_saved_unasked(tmp_path: Path) -> None:
    with conversation(tmp_path, "openai-memory") as talk:
        talk.say("Ann: I was born in Leeds and I am allergic to nuts.", "Bo: Oh.")
        assert any("Leeds" in text for text in talk.texts("saved"))
        [source] = talk.made("saved")[0].sources
        assert talk.kernel.get(source.id).header.speaker == "Ann"


def test_the_profile_is_written_anew_from_time_to_time_and_always_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_memory, "REWRITTEN_AFTER", 4)
    with conversation(tmp_path, "openai-memory") as talk:
        talk.say("user: I like jazz.", "assistant: Jazz is fine.")
        talk.say("user: My garden has roses.", "assistant: Lovely.")
        talk.say("user: I run on Sundays.", "assistant: Good.")
        assert talk.made("profile") == []
        talk.say("user: I read about Rome.", "assistant: Good.")
        [profile] = talk.made("profile")
        lines = [
            "User: I like jazz.",
            "User: My garden has roses.",
            "User: I run on Sundays.",
            "User: I read about Rome.",
        ]
        assert profile.text.split("\n") == lines and scores(talk, openai_memory.UNREAD) == {}
        assert profile.text in talk.find("What is the capital of France?", 6)
        for what in ("chess", "tea", "boats", "maps"):
            talk.say(f"user: I like {what} a lot.", "assistant: Good.")
        [again] = talk.made("profile")
        assert len(again.text.split("\n")) == len(again.sources) == 8  # what it was, and what was said since


def test_chat_history_is_found_beside_what_is_saved(tmp_path: Path) -> None:
    with conversation(tmp_path, "openai-memory") as talk:
        talk.say("user: The soup was too salty.", "assistant: What a pity.")
        assert "salty" in talk.find("How was the soup?", 1)[0]
        assert by(talk, "openai-memory-history", "How was the soup?", 3) == []
        assert by(talk, "openai-memory-profile", "How was the soup?", 1)
