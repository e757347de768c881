"""G-Memory on cases worked out by hand: tasks, what was uttered for them, what was learnt, and the hops between."""

from __future__ import annotations

from pathlib import Path

from talk import Conversation, conversation

SORTS = ("User: Sort a very large file of numbers.", "Planner: Split it up and sort each part on its own.")
SORTED = ("Coder: I merged the sorted parts with a heap of size eight.", "Tester: All tests passed.")
DUMPS = ("User: Sort a very large file of dates.", "Coder: I read it all into memory at once.", "Tester: It failed.")
POEM = ("User: Write a poem about the sea.", "Poet: Waves come and go.")


def tell(talk: Conversation) -> None:
    talk.say(*SORTS, *SORTED)
    talk.say(*DUMPS)
    talk.say(*POEM)


def test_a_task_is_tied_to_its_utterances_in_their_order_and_to_tasks_like_it(tmp_path: Path) -> None:
    with conversation(tmp_path, "g-memory") as talk:
        tell(talk)
        assert [(c.text, c.header.tags) for c in talk.made("query")] == [
            (SORTS[0], ("succeeded",)),
            (DUMPS[0], ("failed",)),
            (POEM[0], ("open",)),
        ]
        numbers, dates, _ = talk.made("query")
        by_kind = {kind: [link for link in talk.links() if link.kind == kind] for kind in ("uttered", "next", "like")}
        assert [len(by_kind[kind]) for kind in ("uttered", "next", "like")] == [4 + 3 + 2, 3 + 2 + 1, 1]
        [like] = by_kind["like"]
        assert (like.a, like.b) == (dates.id, numbers.id) and 0.5 <= like.weight <= 1
        after = {link.a: link.b for link in by_kind["next"]}
        assert [talk.kernel.get(b).words for a, b in after.items() if talk.kernel.get(a).words in SORTED[0]] == [
            "All tests passed."
        ]


def test_an_insight_is_learnt_of_how_a_task_ended_and_supported_by_the_next(tmp_path: Path) -> None:
    with conversation(tmp_path, "g-memory") as talk:
        tell(talk)
        assert talk.texts("insight") == [
            f"{SORTS[0]} This succeeded: {SORTED[0]}",
            f"{DUMPS[0]} This failed: {DUMPS[1]}",
        ]
        talk.say(*SORTS, *SORTED)  # the same again
        first = talk.one("This succeeded")
        assert len(talk.made("insight")) == 2
        assert sum(link.a == first.id for link in talk.links() if link.kind == "learnt of") == 2


def test_a_query_hops_up_to_insights_and_down_to_what_was_uttered(tmp_path: Path) -> None:
    with conversation(tmp_path, "g-memory") as talk:
        tell(talk)
        found = talk.find("How do I sort a large file of numbers?", 8)
        assert "This succeeded" in found[0] and "This failed" in found[1]
        assert any("heap of size eight" in text for text in found[2:])
        assert "heap" in next(t for t in talk.find("What did the Coder merge the parts with?", 8) if "This" not in t)


def test_what_is_odd_is_kept_within_bounds(tmp_path: Path) -> None:
    with conversation(tmp_path, "g-memory") as talk:
        for odd in ("请把文件排序。", "So it goes on and on. " * 900, "?!", "failed error"):
            talk.say(f"Ann: {odd}")
        assert len(talk.texts("query")) == 4 and max(map(len, talk.texts())) <= 300
        assert any("排序" in text for text in talk.find("排序", 5))
