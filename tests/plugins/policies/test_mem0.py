"""Mem0 on cases worked out by hand: which fact is added, updated, deleted, left as it is, and linked."""

from __future__ import annotations

from pathlib import Path

from talk import conversation


def test_facts_are_added_updated_deleted_and_left(tmp_path: Path) -> None:
    with conversation(tmp_path, "mem0") as talk:
        talk.say("Ann: I work as a nurse in Leeds.", "Bo: What a day!")
        talk.say("Ann: My sister Mira plays the violin.", "Bo: Lovely.")
        assert talk.texts() == ["Ann: I work as a nurse in Leeds.", "Ann: My sister Mira plays the violin."]
        talk.say("Ann: I work as a nurse in Leeds.", "Bo: I know.")  # NOOP
        assert len(talk.texts()) == 2
        talk.say("Ann: My sister Mira plays the violin in an orchestra.")  # UPDATE: it says more of the same
        assert talk.texts() == [
            "Ann: I work as a nurse in Leeds.",
            "Ann: My sister Mira plays the violin in an orchestra.",
        ]
        assert talk.made()[1].version == 2 and len(talk.made()[1].sources) == 2
        talk.say("Ann: I no longer work as a nurse in Leeds.")  # DELETE
        assert "Ann: I work as a nurse in Leeds." not in talk.texts()
        assert any("no longer" in text for text in talk.texts())
        assert talk.find("Who plays the violin?", 1) == ["Ann: My sister Mira plays the violin in an orchestra."]


def test_a_fact_names_the_turn_that_says_it_and_goes_with_it(tmp_path: Path) -> None:
    with conversation(tmp_path, "mem0") as talk:
        talk.say("Ann: I adopted a dog called Rex.", "Bo: I bought a boat last week.")
        for cube in talk.made():
            [turn] = [talk.kernel.get(source.id) for source in cube.sources]
            assert cube.text.split(": ", 1)[1].split()[2] in turn.text
        talk.kernel.delete(talk.made()[0].sources[0].id)
        assert all("Rex" not in text for text in talk.texts())


def test_the_graph_links_facts_of_one_entity_and_finds_along_it(tmp_path: Path) -> None:
    with conversation(tmp_path, "mem0-graph") as talk:
        talk.say("Ann: My sister Mira plays the violin.")
        talk.say("Ann: Mira works at Aldi now.")
        talk.say("Ann: I have a cat called Tom.")
        a, b = talk.one("violin"), talk.one("Aldi")
        [link] = talk.links()
        assert {link.a, link.b} == {a.id, b.id} and link.kind == "names the same"
