"""Emotional RAG on cases worked out by hand: the mood of a turn is kept once, and tells among what is equally near."""

from __future__ import annotations

from pathlib import Path

from looking import by, scores
from talk import conversation

from memos.plugins.policies.emotional_rag import NAMES

SAD, GLAD = "The exam was yesterday, I am so sad, I cried.", "The exam was yesterday, I am so happy and glad!"


def test_the_mood_of_a_turn_is_kept_with_it(tmp_path: Path) -> None:
    with conversation(tmp_path, "emotional-rag") as talk:
        talk.say(f"Ann: {SAD}", f"Bo: {GLAD}")
        assert scores(talk, "sadness")[SAD] > scores(talk, "sadness").get(GLAD, 0.0)
        assert scores(talk, "joy")[GLAD] > scores(talk, "joy").get(SAD, 0.0)
        assert sum(scores(talk, name).get(SAD, 0.0) ** 2 for name in NAMES) <= 1.01
        assert talk.made() == []


def test_the_mood_of_a_query_tells_among_turns_on_the_same(tmp_path: Path) -> None:
    with conversation(tmp_path, "emotional-rag") as talk:
        talk.say(f"Ann: {SAD}", f"Bo: {GLAD}")
        talk.say("Ann: My bicycle is green.", "Bo: Mine is red.")
        for name in ("emotional-rag", "emotional-rag-multiply", "emotional-rag-sequential"):
            [low, *_] = by(talk, name, "that exam, when someone felt lonely, lost and sad", 2)
            [high, *_] = by(talk, name, "that exam, when someone felt delighted, glad and happy", 2)
            assert SAD in low and GLAD in high, name


def test_without_emotion_nothing_is_kept(tmp_path: Path) -> None:
    with conversation(tmp_path, "emotional-rag-emotion") as talk:
        talk.say(f"Ann: {SAD}", "Bo: My bicycle is green.")
        assert not any(scores(talk, name) for name in NAMES)
        assert "bicycle" in talk.find("What colour is the bicycle?", 1)[0]
