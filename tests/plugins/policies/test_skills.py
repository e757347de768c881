"""Skills on traces worked out by hand: what is learnt of a success and a failure, upvoted, downvoted and forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from talk import Conversation, conversation

RAIN = "Will it rain in Oslo tomorrow?"


def run(talk: Conversation, task: str, call: str, city: str, **outcome: Any) -> None:
    talk.memory.add(
        messages=[{"call": {"name": call, "arguments": {"city": city}}, "task": task, **outcome}], user_id=talk.user
    )
    talk.calls.curate()


def test_a_success_is_a_skill_a_failure_an_insight_and_both_a_pair(tmp_path: Path) -> None:
    with conversation(tmp_path, "skills") as talk:
        run(talk, RAIN, "radar", "Oslo", error="no such station")
        assert talk.texts() == [f"radar(city=Oslo) fails: no such station. It was called for: {RAIN}"]
        run(talk, RAIN, "weather", "Oslo", result={"rain": True})
        assert talk.texts("skill") == [f"{RAIN}: weather(city=Oslo) does it."]
        pair = talk.one("works where")
        assert pair.text == f"{RAIN}: weather(city=Oslo) works where radar(city=Oslo) failed (no such station)."
        assert len(pair.sources) == 2 and pair.header.kind == "insight"
        talk.say("Ann: I like rain.", "Bo: Me too.")  # nothing is learnt of what is said
        assert len(talk.texts()) == 3


def test_the_same_outcome_is_an_upvote_and_the_other_a_downvote_until_it_is_forgotten(tmp_path: Path) -> None:
    with conversation(tmp_path, "skills") as talk:
        run(talk, RAIN, "weather", "Oslo", result="rain")
        run(talk, RAIN, "weather", "Oslo", result="sun")
        assert len(talk.texts()) == 1  # upvoted: three votes
        for n, left in enumerate((True, True, False)):
            run(talk, RAIN, "weather", "Oslo", error=f"quota {n}")
            assert bool(talk.texts("skill")) is left
        assert talk.texts("insight") == [f"weather(city=Oslo) fails: quota 0. It was called for: {RAIN}"]


def test_a_task_finds_skills_before_traces_and_turns_and_votes_decide_between_equals(tmp_path: Path) -> None:
    with conversation(tmp_path, "skills") as talk:
        run(talk, "What is the weather in Rome?", "forecast", "Rome", result="sun")
        run(talk, "What is the weather in Rome?", "weather", "Rome", result="sun")
        for degrees in range(3):
            run(talk, "What is the weather in Rome?", "weather", "Rome", result=degrees)
        talk.say("Ann: The museum of modern art opens at ten.", "Bo: Good.")
        assert talk.find("What is the weather in Rome?", 6)[:2] == [
            "What is the weather in Rome?: weather(city=Rome) does it.",
            "What is the weather in Rome?: forecast(city=Rome) does it.",
        ]
        assert "opens at ten" in talk.find("When does the museum open?", 3)[0]


def test_what_is_odd_is_kept_within_bounds(tmp_path: Path) -> None:
    with conversation(tmp_path, "skills") as talk:
        run(talk, "天气？" * 900, "weather", "上海" * 900, error="超时" * 900)
        run(talk, "天气？" * 900, "weather", "上海" * 900, result="")
        assert 1 <= len(talk.texts()) <= 3 and max(map(len, talk.texts())) <= 300
