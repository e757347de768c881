"""Zep on cases worked out by hand: how long a fact is true, what is tied, summed up, and found along the graph."""

from __future__ import annotations

from pathlib import Path

from talk import conversation

from memos.plugins.curators.rules import communities

ODD = ("Ann: 我住在上海，喜欢喝拿铁。", "Ann: " + "So it goes on and on. " * 900, "Ann: ?!", "Ann: Paris " * 300)


def test_a_fact_that_is_contradicted_ends_and_stays(tmp_path: Path) -> None:
    with conversation(tmp_path, "zep") as talk:
        talk.say("Ann: I work as a nurse at Aldi in Leeds.", "Bo: What a day!")
        talk.say("Ann: My sister Mira plays the violin.", "Bo: Lovely.")
        talk.say("Ann: I no longer work as a nurse at Aldi in Leeds.", "Bo: Why?", day=9)
        assert talk.texts("edge") == [
            "Ann: I work as a nurse at Aldi in Leeds. (until 2025-03-12)",
            "Ann: My sister Mira plays the violin.",
            "Ann: I no longer work as a nurse at Aldi in Leeds.",
        ]
        old, other, new = talk.made("edge")
        assert old.version == 2 and len(old.sources) == 2 and old.header.said < new.header.said
        ends = {link.until for link in talk.links() if link.a == old.id}
        assert len(ends) == 1 and ends == {new.header.said} != {None}
        assert {link.until for link in talk.links() if link.a in (other.id, new.id)} == {None}
        assert {link.since for link in talk.links() if link.a == old.id} == {old.header.said}
        found = talk.find("Where does Ann work as a nurse?", 3)
        assert found[0] == new.text and old.text in found


def test_facts_are_tied_to_the_entities_that_they_name_each_of_which_is_made_once(tmp_path: Path) -> None:
    with conversation(tmp_path, "zep") as talk:
        talk.say("Ann: My sister is called Mira Berg.", "Bo: I met Mira Berg in Oslo last Friday.")
        talk.say("Ann: I like Oslo a lot.")
        assert sorted(talk.texts("entity")) == ["Ann", "Bo", "Mira Berg", "Oslo"]
        _, met, likes = talk.made("edge")
        oslo = next(cube for cube in talk.made("entity") if cube.text == "Oslo")
        assert met.text == "Bo: I met Mira Berg in Oslo last Friday. (2025-02-28)"
        assert {link.a for link in talk.links() if link.b == oslo.id} == {met.id, likes.id}


def test_labels_spread_until_none_changes() -> None:
    groups = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "e"), ("c", "d"), ("e", "f"), ("d", "f"), ("z",)]
    assert set(communities(map(frozenset, groups))) == {frozenset("abc"), frozenset("def")}


def test_a_community_is_summed_up_and_made_anew_when_its_members_change(tmp_path: Path) -> None:
    with conversation(tmp_path / "with", "zep") as talk:
        talk.say("Ann: My sister Mira lives in Oslo.")
        [first] = talk.made("community")
        assert set(first.header.tags) == {"Ann", "Mira", "Oslo"} and "lives in Oslo" in first.text
        talk.say("Ann: The boat of Mira is called Tern.")
        [second] = talk.made("community")
        assert set(second.header.tags) == {"Ann", "Mira", "Oslo", "Tern"} and "boat" in second.text
        assert {source.id for source in second.sources} == {
            cube.id for cube in talk.kernel.memories() if cube.header.kind == "episode"
        }
    with conversation(tmp_path / "less", "zep-communities") as talk:
        talk.say("Ann: My sister Mira lives in Oslo.")
        assert talk.made("edge") and not talk.made("community")


def test_the_graph_ranks_facts_of_the_entity_that_a_query_names_first(tmp_path: Path) -> None:
    with conversation(tmp_path, "zep") as talk:
        talk.say("Ann: The garden of our aunt is full of roses and tulips.", "Bo: I saw Mira water roses and tulips.")
        talk.say("Ann: I went with Mira to the cinema.", "Bo: The cinema was closed all week.")
        assert "to the cinema" in talk.find("What did Mira do at the cinema?", 4)[0]
        assert "I saw Mira" in talk.find("Which flowers does Mira tend in the garden?", 4)[0]


def test_what_is_odd_is_kept_within_bounds(tmp_path: Path) -> None:
    with conversation(tmp_path, "zep") as talk:
        for line in ODD:
            talk.say(line)
        assert any("上海" in text for text in talk.find("上海", 5))
        assert max(map(len, talk.texts())) <= 500
        assert len(talk.calls.curations()) >= 2
