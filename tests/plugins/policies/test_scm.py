"""SCM on cases worked out by hand: when memory is needed, what ranks first, and when a summary does."""

from __future__ import annotations

from pathlib import Path

from talk import conversation

LONG = (
    "Ann: We had a wonderful time at the lake with my cousins and their children last weekend. The water was cold. "
    "My uncle Pete repaired his old sailing boat there. It rained a bit. We grilled fish in the evening and sang songs."
)
REPLY = "Bo: That sounds like a perfect family weekend, and I would have loved to sail with all of you on the lake too."


def test_memory_is_not_asked_where_nothing_is_needed(tmp_path: Path) -> None:
    with conversation(tmp_path, "scm") as talk:
        talk.say("Ann: My cat is called Tom.", "Bo: Hello Tom!")
        assert talk.find("Hello, thanks!") == [] and talk.find("好的，谢谢") == []
        assert talk.find("What is the cat called?") == ["Ann: My cat is called Tom.\nBo: Hello Tom!"]


def test_the_summary_is_shown_where_it_has_what_is_asked_for(tmp_path: Path) -> None:
    with conversation(tmp_path, "scm") as talk:
        talk.say(LONG, REPLY)
        [gist], [whole] = talk.made("gist"), talk.made("interaction")
        [link] = talk.links()
        assert (link.a, link.b, link.kind) == (gist.id, whole.id, "sums up")
        assert gist.sources == whole.sources and len(gist.text) < len(whole.text) / 1.5
        assert "wonderful" in gist.text and "Pete" not in gist.text
        assert talk.find("Was the time at the lake with cousins wonderful?", 1) == [gist.text]
        assert talk.find("What did uncle Pete repair?", 1) == [whole.text]


def test_of_what_is_as_near_the_later_comes_first(tmp_path: Path) -> None:
    with conversation(tmp_path, "scm") as talk:
        talk.say("Ann: I have a meeting with Carol about the budget.", day=0)
        talk.say("Ann: The tulips are out.", day=100)
        talk.say("Ann: I have a meeting with Carol about the budget!", day=200, thread="later")
        found = talk.find("When is the meeting with Carol about the budget?", 3)
        assert [text[-1] for text in found[:2]] == ["!", "."] and "tulips" in found[2]
        assert talk.find("Are the tulips out?", 1) == ["Ann: The tulips are out."]
