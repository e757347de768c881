"""MIRIX on cases worked out by hand: which manager keeps what, what is rewritten, and what each gives."""

from __future__ import annotations

from pathlib import Path

from talk import conversation

SAID = (
    ("Ann: I work as a nurse and I love the sea.", "Bo: Nice to know."),
    ("Ann: We went sailing with Mira last Friday.", "Bo: Was it windy?"),
    ("Ann: First knead the dough, then let it rise for an hour.", "Bo: Thanks for the recipe!"),
    ("Ann: My password for the boat site is tern-42.", "Bo: I will not tell."),
    ("Ann: Look at this! [a photo of a red sailing boat]", "Bo: What a beauty."),
    ("Ann: Write to me at ann@example.org from Monday.", "Bo: I will."),
)


def test_each_manager_keeps_what_is_its_own(tmp_path: Path) -> None:
    with conversation(tmp_path, "mirix") as talk:
        for exchange in SAID:
            talk.say(*exchange)
        assert talk.texts("core block") == ["Ann: I work as a nurse and I love the sea."]
        assert talk.texts("concept") == ["Ann: We went sailing with Mira last Friday. (2025-02-28)"]
        assert "Ann: First knead the dough, then let it rise for an hour." in talk.texts("procedure")
        assert talk.texts("resource") == ["Ann: Look at this! [a photo of a red sailing boat]"]
        vault = {cube.text: cube.header.tags for cube in talk.made("vault entry")}
        assert vault["Ann: My password for the boat site is tern-42."] == ("sensitivity:high",)
        assert any("ann@example.org" in text and not tags for text, tags in vault.items())
        assert len(talk.texts("event")) == 12  # what happened is all that was said


def test_a_core_block_gains_lines_and_is_rewritten_when_it_is_full(tmp_path: Path) -> None:
    things = "tea rain snow bread chess jazz maps trams owls moss figs".split()
    with conversation(tmp_path, "mirix") as talk:
        talk.say("Ann: I work as a nurse in Leeds, where I moved for my first job.", "Bo: I like soup and salad.")
        for thing in things:
            talk.say(f"Ann: I like {thing} with milk.")
        ann = next(cube for cube in talk.made("core block") if cube.header.speaker == "Ann")
        assert len(ann.text.splitlines()) == len(ann.sources) == 12 and ann.version == 12
        talk.say("Ann: I like figs with milk.")  # it is known
        assert next(cube for cube in talk.made("core block") if "figs" in cube.text).version == 12
        talk.say("Ann: I love old clocks and bells.")
        mine = [cube for cube in talk.made("core block") if cube.header.speaker == "Ann"]
        assert len(mine) == 1 and len(mine[0].text.splitlines()) == len(mine[0].sources) == 6
        assert "nurse in Leeds" in mine[0].text.splitlines()[0]  # what weighs most stays
        assert talk.texts("core block").count("Bo: I like soup and salad.") == 1


def test_all_memories_are_asked_and_a_secret_is_given_to_who_asks_for_one(tmp_path: Path) -> None:
    with conversation(tmp_path, "mirix") as talk:
        for exchange in SAID:
            talk.say(*exchange)
        kinds = {hit.cube.header.kind for hit in talk.kernel.search("Tell me of sailing and the dough", top_k=40)}
        assert {"core block", "event", "concept", "procedure", "resource", "vault entry"} == kinds
        assert "tern-42" in talk.find("What is the password for the boat site?", 3)[0]
        guarded = [hit.cube for hit in talk.kernel.search("Which boat did Ann show?", top_k=40)]
        assert not any(cube.header.kind == "vault entry" and "tern-42" in cube.text for cube in guarded)


def test_what_is_odd_is_kept_within_bounds(tmp_path: Path) -> None:
    with conversation(tmp_path, "mirix") as talk:
        for odd in ("我叫安娜，我喜欢喝拿铁。", "So it goes on and on. " * 900, "?!", "I like Paris. " * 900):
            talk.say(f"Ann: {odd}")
        assert max(map(len, talk.texts())) <= 700
        assert any("拿铁" in text for text in talk.find("拿铁", 5))
