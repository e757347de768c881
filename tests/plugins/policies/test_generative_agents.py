"""Generative Agents on cases worked out by hand: what is rated, when there is a reflection and on what, what ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from looking import answered, by, scores
from talk import conversation

from memos.plugins.policies import generative_agents
from memos.plugins.policies.generative_agents import IMPORTANCE, UNREFLECTED

SHOW = (
    ("Ann: My sister got married in Rome last week.", "Bo: Wow, a wedding!"),
    ("Ann: I had to buy a new blue dress for the wedding of my sister.", "Bo: Nice."),
    ("Ann: I decided to quit my job at the bank.", "Bo: Oh."),
    ("Ann: My first day at the hospital as a nurse was hard.", "Bo: Hang on."),
)


def test_every_turn_has_its_importance(tmp_path: Path) -> None:
    with conversation(tmp_path, "generative-agents") as talk:
        talk.say("Ann: I was diagnosed with cancer and had surgery at the hospital.", "Bo: Hm.")
        rated = scores(talk, IMPORTANCE)
        assert rated["I was diagnosed with cancer and had surgery at the hospital."] >= 5 and rated["Hm."] == 1


def test_reflections_come_as_importances_add_up_and_quote_what_they_rest_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generative_agents, "DUE", 24.0)
    with conversation(tmp_path, "generative-agents") as talk:
        for exchange in SHOW[:3]:
            talk.say(*exchange)
        rated = scores(talk, IMPORTANCE)
        assert sum(rated.values()) < 24 and scores(talk, UNREFLECTED) == rated and talk.made() == []
        talk.say(*SHOW[3])
        assert scores(talk, UNREFLECTED) == {}  # the count begins anew
        reflections = talk.made("reflection")
        assert 1 <= len(reflections) <= 3
        wedding = next(one for one in reflections if "dress" in one.text)
        assert "Ann: My sister got married in Rome last week." in wedding.text.split("\n")
        for one in reflections:  # a line for each source, in their order
            turns = [talk.kernel.get(source.id) for source in one.sources]
            assert one.text.split("\n") == [f"{turn.header.speaker}: {turn.words}" for turn in turns]
            assert scores(talk, IMPORTANCE)[one.text] >= 1


def test_what_is_equally_near_is_ranked_by_importance_and_by_recency_of_retrieval(tmp_path: Path) -> None:
    with conversation(tmp_path, "generative-agents-equal") as talk:
        talk.say("Ann: Tea with milk (green).", "Bo: Tea with milk (red).", day=0)
        talk.say("Ann: Tea with milk (blue).", day=30)
        talk.say("Ann: I am allergic to tea with milk, I was diagnosed at the hospital.", day=1)
        found = by(talk, "generative-agents-equal", "Tea with milk", 4)
        assert found.index("Tea with milk (blue).") < found.index("Tea with milk (green).")  # said a month later
        assert any("allergic" in words for words in found[:2])  # it weighs more, though it is older than the blue one
        answered(talk, "Tea with milk (green).")
        again = by(talk, "generative-agents-equal", "Tea with milk", 4)
        assert again.index("Tea with milk (green).") < again.index("Tea with milk (blue).")


def test_memories_that_weigh_the_same_are_ranked_by_the_rest(tmp_path: Path) -> None:
    with conversation(tmp_path, "generative-agents") as talk:
        talk.say("Ann: Tea with milk.", "Bo: Rain again.")
        assert len(set(scores(talk, IMPORTANCE).values())) == 1
        assert by(talk, "generative-agents", "Tea with milk", 2) == ["Tea with milk.", "Rain again."]


def test_without_reflection_there_is_the_stream_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generative_agents, "DUE", 1.0)
    with conversation(tmp_path, "generative-agents-reflection") as talk:
        talk.say(*SHOW[0])
        assert talk.made() == [] and scores(talk, UNREFLECTED) == {}
        assert "got married in Rome" in talk.find("Who got married?", 1)[0]
