"""LangMem on cases worked out by hand: facts are inserted, updated, deleted and merged; experiences; instructions."""

from __future__ import annotations

from pathlib import Path

from talk import conversation


def test_facts_are_inserted_updated_deleted_and_left(tmp_path: Path) -> None:
    with conversation(tmp_path, "langmem") as talk:
        talk.say("Ann: I work as a nurse in Leeds.", "Bo: Hm.")
        talk.say("Ann: I work as a nurse in Leeds.", "Bo: Hm.")
        assert talk.texts("semantic") == ["Ann: I work as a nurse in Leeds."]
        talk.say("Ann: I work as a nurse in Leeds at night.", "Bo: Hm.")
        [fact] = talk.made("semantic")
        assert (
            fact.text == "Ann: I work as a nurse in Leeds at night."
            and fact.version == 2
            and len(fact.sources) == 3 - 1
        )
        talk.say("Ann: I no longer work as a nurse in Leeds.", "Bo: Hm.")
        assert len(talk.made("semantic")) == 1 and "no longer" in talk.texts("semantic")[0]
        assert "no longer" in talk.find("Where does Ann work?", 1)[0]


def test_what_says_nearly_the_same_is_made_one_when_idle(tmp_path: Path) -> None:
    with conversation(tmp_path, "langmem") as talk:
        # within one exchange neither is known as the other is read
        talk.say("Ann: My sister Mira plays the violin in Leeds.", "Bo: Ann, my sister Mira plays the violin in Leeds!")
        [one] = talk.made("semantic")
        assert "violin" in one.text and len(one.sources) == 2


def test_what_was_praised_is_an_experience(tmp_path: Path) -> None:
    with conversation(tmp_path, "langmem") as talk:
        talk.say("user: How do I undo the last commit?", "assistant: Run git reset with soft.")
        assert talk.made("experience") == []
        talk.say("user: Perfect, that worked.", "assistant: Good.")
        [one] = talk.made("experience")
        assert one.text.split("\n") == [
            "Observation: How do I undo the last commit?",
            "Action: Run git reset with soft.",
            "Result: Perfect, that worked.",
        ]
        assert [talk.kernel.get(source.id).words for source in one.sources] == [
            "How do I undo the last commit?",
            "Run git reset with soft.",
            "Perfect, that worked.",
        ]


def test_instructions_are_written_anew_and_always_shown(tmp_path: Path) -> None:
    with conversation(tmp_path, "langmem") as talk:
        talk.say("user: Always answer in English.", "assistant: Yes.")
        talk.say("user: Never use tables in replies.", "assistant: Yes.")
        assert talk.texts("instructions") == ["Always answer in English.\nNever use tables in replies."]
        talk.say("user: From now on always answer in French.", "assistant: Oui.")
        [one] = talk.made("instructions")
        assert one.text == "Never use tables in replies.\nFrom now on always answer in French."
        assert len(one.sources) == 2
        assert one.text in talk.find("What is the weather like in Rome?", 5)


def test_switches_leave_their_memories_out(tmp_path: Path) -> None:
    with conversation(tmp_path, "langmem-procedural") as talk:
        talk.say("user: Always answer in English.", "assistant: Yes.")
        assert talk.made("instructions") == []
    with conversation(tmp_path / "b", "langmem-episodic") as talk:
        talk.say("user: How do I undo the last commit?", "assistant: Run git reset with soft.")
        talk.say("user: Perfect, that worked.", "assistant: Good.")
        assert talk.made("experience") == []
