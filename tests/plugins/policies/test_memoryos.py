"""MemoryOS's formulas against numbers by hand, its tiers, and each known defect of the published code.

Vectors are axes of our own, so that every cosine is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from memos.config import MemoryOSConfig
from memos.cube import Fact, Form, Header, MemCube, Rights, Text, Usage
from memos.operation.policies.policy import Floats
from memos.plugins.policies.memoryos import MemoryOSPolicy, MemoryOSTiers, f_score, heat
from memos.plugins.policies.memoryos_profile import DIMENSIONS
from memos.plugins.policies.tiers import Note

NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)
PAPER = MemoryOSConfig()
DIM = 256


def axis(n: int) -> Floats:
    return np.eye(DIM, dtype=np.float32)[n]


def toward(n: int, cosine: float, other: int = DIM - 1) -> Floats:
    """A unit vector with this cosine to axis n; the rest of it lies on another axis."""
    found: Floats = (cosine * axis(n) + math.sqrt(1 - cosine**2) * axis(other)).astype(np.float32)
    return found


def note(
    id: str, vector: Floats, text: str = "", speaker: str = "User", thread: str = "", s: float = 0, **more: Any
) -> Note:
    """A note kept `s` seconds after noon; its one word is its id, if it says nothing else."""
    return Note(id, text or id, speaker, thread, NOON + timedelta(seconds=s), vector, **more)


def tiers(*notes: Note, **config: Any) -> MemoryOSTiers:
    """Those with a short queue of one page, so that all but the last note are in the middle."""
    made = MemoryOSTiers(MemoryOSConfig(**{"stm_pages": 1} | config))
    for one in notes:
        made.keep(one)
    return made


def middle(made: MemoryOSTiers) -> list[list[str]]:
    """The notes of each segment."""
    return [[one.id for page in topic.pages for one in page.notes] for topic in made.topics.values()]


def ids(notes: Sequence[Note]) -> list[str]:
    return [one.id for one in notes]


LAST = note("last", axis(200))  # takes the one place in the queue


# the formulas


@pytest.mark.parametrize(
    "cosine, words, others, score",
    [
        (0.6, "a b c", "b c d", 0.6 + 2 / 4),
        (0.6, "a", "b", 0.6),
        (0.6, "", "", 0.6),
        (0.6, "", "a", 0.6),
        (1.0, "a b", "a b", 2.0),  # the most there is
        (-1.0, "a", "b", -1.0),  # the least
        (0.25, "a b c d", "a", 0.25 + 1 / 4),
    ],
)
def test_f_score_is_cosine_and_jaccard(cosine: float, words: str, others: str, score: float) -> None:
    given = frozenset(words.split()), frozenset(others.split())
    assert f_score(axis(0), given[0], toward(0, cosine), given[1]) == pytest.approx(score)
    assert f_score(toward(0, cosine), given[1], axis(0), given[0]) == pytest.approx(score)


@pytest.mark.parametrize(
    "visits, pages, seconds, weights, expected",
    [
        (0, 0, 0, {}, 1.0),
        (2, 3, 0, {}, 6.0),
        (2, 3, 1e7, {}, 5 + math.exp(-1)),
        (2, 3, 2e7, {}, 5 + math.exp(-2)),
        (2, 3, 1e7, {"alpha": 0.5, "beta": 2.0, "gamma": 3.0}, 7 + 3 * math.exp(-1)),
        (0, 0, 60, {"mu_s": 60}, math.exp(-1)),
        (0, 0, -60, {}, 1.0),  # a clock that was put back
    ],
)
def test_heat_is_visits_and_interaction_and_recency(
    visits: int, pages: int, seconds: float, weights: dict[str, float], expected: float
) -> None:
    now = NOON + timedelta(seconds=seconds)
    assert heat(MemoryOSConfig(**weights), visits, pages, NOON, now) == pytest.approx(expected)


def test_the_constants_are_those_of_the_paper() -> None:
    c = PAPER
    assert (c.stm_pages, c.segments, c.theta, c.alpha, c.beta, c.gamma) == (7, 200, 0.6, 1, 1, 1)
    assert (c.mu_s, c.tau, c.knowledge, c.traits) == (1e7, 5, 100, 100)
    assert (c.top_segments, c.top_pages, c.top_knowledge) == (5, 10, 10)


def test_a_topic_group_has_the_same_heat() -> None:
    def cube(recalls: int, ago: float) -> MemCube:
        usage = Usage(recalls=recalls, last_recalled=NOON - timedelta(seconds=ago)) if recalls else Usage()
        header = Header(created=NOON - timedelta(days=300))
        return MemCube(
            id=f"{recalls}", form=Form.PLAINTEXT, rights=Rights(owner="a"), header=header, payload=Text(text="x"),
            usage=usage,
        )  # fmt: skip

    policy = MemoryOSPolicy(PAPER)
    assert policy.heat([cube(3, 1e7), cube(0, 0)], NOON) == pytest.approx(3 + 2 + math.exp(-1))
    assert policy.heat([cube(0, 0)], NOON) == pytest.approx(1 + math.exp(-300 * 86_400 / 1e7))


# pages and the queue


@pytest.mark.parametrize(
    "said, pages",
    [
        ([("Ann", "t"), ("Bob", "t")], 1),
        ([("Ann", "t"), ("Ann", "t")], 2),  # nobody answers herself
        ([("Ann", "t"), ("ann", "t")], 2),
        ([("Ann", "t"), ("Bob", "u")], 2),  # another conversation
        ([("Ann", ""), ("Bob", "")], 2),  # none at all
        ([("Ann", "t"), ("Bob", "t"), ("Ann", "t"), ("Bob", "t")], 2),
        ([("Ann", "t"), ("Bob", "t"), ("Cid", "t")], 2),
    ],
)
def test_a_page_is_what_one_says_and_another_answers(said: list[tuple[str, str]], pages: int) -> None:
    notes = [note(f"n{i}", axis(i), speaker=who, thread=thread) for i, (who, thread) in enumerate(said)]
    short = tiers(*notes, stm_pages=7).short
    assert len(short) == pages
    assert [one for page in short for one in page.notes] == notes


def test_the_queue_holds_seven_pages_and_the_oldest_moves_on() -> None:
    made = tiers(*(note(f"n{i}", axis(i)) for i in range(9)), stm_pages=7)
    assert [page.query.id for page in made.short] == [f"n{i}" for i in range(2, 9)]
    assert middle(made) == [["n0"], ["n1"]]
    assert [made.settled(f"n{i}") for i in range(9)] == [True] * 2 + [False] * 7


def test_pages_on_one_matter_are_one_chain() -> None:
    said = ["The boat is red.", "Its boat engine broke.", "I baked bread."]
    made = tiers(*(note(f"n{i}", axis(i), text, thread="t") for i, text in enumerate(said)), stm_pages=7)
    first, second, third = made.short
    assert first.chain == second.chain == first.number and third.chain == third.number


# segments


@pytest.mark.parametrize("cosine, segments", [(0.59, 2), (0.61, 1), (-0.5, 2)])
def test_a_page_joins_where_the_f_score_is_above_the_threshold(cosine: float, segments: int) -> None:
    assert len(middle(tiers(note("a", axis(0)), note("b", toward(0, cosine)), LAST))) == segments


def test_keywords_help_a_page_to_join() -> None:
    """.4 + 1/3 is above .6."""
    words = [note("a", axis(0), "boat engine"), note("b", toward(0, 0.4), "boat harbour"), LAST]
    assert middle(tiers(*words)) == [["a", "b"]]
    assert middle(tiers(*words, theta=0.74)) == [["a"], ["b"]]


def test_a_score_that_is_just_the_threshold_is_not_above_it() -> None:
    assert middle(tiers(note("a", axis(0)), note("b", axis(1)), LAST, theta=0.0)) == [["a"], ["b"]]


def test_the_fullest_place_for_a_page_is_the_best_not_the_first() -> None:
    made = tiers(note("a", axis(0)), note("b", axis(1)), note("c", (0.62 * axis(0) + 0.78 * axis(1))), LAST)
    assert middle(made) == [["a"], ["b", "c"]]


# the known defects of the published code


def test_a_page_with_two_themes_is_stored_once() -> None:
    both = note("both", (axis(0) + axis(1)) / np.float32(math.sqrt(2)), "boat bread")
    made = tiers(note("a", axis(0), "boat"), note("b", axis(1), "bread"), both, LAST)
    assert sum(segment.count("both") for segment in middle(made)) == 1
    recalled = made.recall(both.vector, frozenset({"boat", "bread"}), {"a", "b", "both"})
    assert sorted(one.id for one in recalled) == ["a", "b", "both"]


def test_the_coldest_is_evicted_by_its_whole_heat_and_not_by_visits() -> None:
    """a: one visit and one page, 3. b: no visit and three pages, 4. By visits alone, b would leave."""
    big = [note(f"b{i}", axis(1)) for i in range(3)]
    made = tiers(note("a", axis(0)), *big, note("x", axis(2)), segments=2)
    made.use(["a"], NOON)
    assert [made.heat(topic, NOON) for topic in made.topics.values()] == [3, 4]
    made.keep(note("y", axis(3)))
    assert middle(made) == [["b0", "b1", "b2"], ["x"]]


def test_recency_decays_over_months_and_not_within_a_day() -> None:
    """The code's tau of 24 h would have made a segment of yesterday as cold as one of last year."""
    assert heat(PAPER, 0, 0, NOON, NOON + timedelta(hours=24)) > 0.99
    year = [note("old", axis(0)), note("new", axis(1), s=364 * 86_400), note("x", axis(2), s=365 * 86_400)]
    made = tiers(*year, note("y", axis(3), s=365 * 86_400), segments=2)
    assert middle(made) == [["new"], ["x"]]


def test_there_are_two_hundred_segments_and_no_more() -> None:
    made = tiers(*(note(f"n{i}", axis(i)) for i in range(203)), stm_pages=1)
    assert middle(made) == [[f"n{i}"] for i in range(2, 202)]  # of as cold ones the oldest leave


def test_fenced_json_is_no_segment_of_its_own() -> None:
    """Where a model answered so, every page went into one segment named General."""
    texts = [
        '```json\n[{"theme": "boat"}]\n```',
        '```json\n[{"theme": "bread"}]\n```',
        '```json\n{"theme": "cat"}\n```',
    ]
    made = tiers(*(note(f"n{i}", axis(i), text) for i, text in enumerate(texts)), LAST)
    assert middle(made) == [["n0"], ["n1"], ["n2"]]
    assert not any("general" in topic.keywords for topic in made.topics.values())


FAILED = "Error: Could not get response from LLM. Please try again."


@pytest.mark.parametrize("speaker", ["assistant", "User", ""])
def test_a_failure_of_the_model_never_overwrites_the_profile(speaker: str) -> None:
    """Of 30 characters or more it became the whole profile. Said by whomever, it is no fact of the user."""
    home = Fact(subject="User", relation="home", object="Oslo")
    hot = [note("home", axis(0), "I live in Oslo.", facts=(home,))]
    hot += [note(f"h{i}", axis(0), f"More of that, {i}.") for i in range(3)]
    made = tiers(*hot, LAST)
    assert [one.text for one in made.profile.values()] == ["I live in Oslo."]
    for i in range(6):
        made.keep(note(f"f{i}", axis(0), FAILED, speaker=speaker))
    made.keep(note("end", axis(201)))
    assert len(FAILED) >= 30 and "f4" in made._topic_of  # it did come through a hot segment
    assert [one.text for one in made.profile.values()] == ["I live in Oslo."]
    assert (FAILED in [one.text for one in made.traits]) == (speaker == "assistant")


def test_a_hot_segment_that_is_told_already_blocks_no_other() -> None:
    made = tiers(*(note(f"a{i}", axis(0)) for i in range(4)), LAST)
    for _ in range(9):
        made.use(["a0"], NOON)  # the hottest by far, and all of it is known
    for i in range(4):
        made.keep(note(f"b{i}", axis(1)))
    made.keep(note("end", axis(202)))
    hottest = max(made.topics.values(), key=lambda topic: made.heat(topic, NOON))
    assert hottest.pages[0].query.id == "a0" and not hottest.fresh
    assert {"b0", "b1", "b2", "b3"} <= set(ids(made.knowledge))


# promotion and the long term


def test_a_segment_is_promoted_at_tau_and_its_interaction_begins_anew() -> None:
    """Three pages: 0 + 3 + 1 = 4. Four: 5, which is tau."""
    made = tiers(*(note(f"n{i}", axis(0)) for i in range(4)))  # the fourth is in the queue
    [topic] = made.topics.values()
    assert made.heat(topic, NOON) == 4 and not made.knowledge
    made.keep(LAST)
    assert ids(made.knowledge) == ["n0", "n1", "n2", "n3"]
    assert topic.fresh == [] and made.heat(topic, NOON) == 1


def test_visits_bring_a_segment_there_too() -> None:
    made = tiers(note("n", axis(0)), LAST)
    for visits in range(1, 4):
        assert not made.knowledge
        made.use(["n"], NOON)  # visits + 1 page + 1
        assert made.heat(next(iter(made.topics.values())), NOON) == (visits + 2 if visits < 3 else 4)
    assert ids(made.knowledge) == ["n"]


def test_one_answer_is_one_visit_to_a_segment_however_many_pages_it_took() -> None:
    made = tiers(note("a", axis(0)), note("b", axis(0)), note("c", axis(1)), LAST)
    made.use(["a", "b", "last", "unknown"], NOON + timedelta(seconds=5))
    assert [topic.visits for topic in made.topics.values()] == [1, 0]
    assert next(iter(made.topics.values())).last == NOON + timedelta(seconds=5)


def test_knowledge_is_first_in_first_out() -> None:
    said = [note(f"n{i}", axis(0)) for i in range(105)]
    assert ids(tiers(*said, LAST).knowledge) == [f"n{i}" for i in range(4, 104)]  # promoted one by one once it is hot


def test_the_profile_has_the_latest_of_each_and_what_it_displaced_is_knowledge() -> None:
    def home(id: str, city: str, subject: str = "User") -> Note:
        fact = Fact(subject=subject, relation="home", object=city)
        return note(id, axis(0), f"I live in {city}.", facts=(fact,))

    said = [
        home("rome", "Rome"),
        home("oslo", "Oslo"),
        home("ann", "Lima", subject="Ann"),
        note("q", axis(0), "Is it?"),
    ]
    made = tiers(*said, LAST)
    assert ids([*made.profile.values()]) == ["oslo"]
    assert ids(made.knowledge) == ["rome", "ann"]  # what Ann does is no fact of the user; a question says nothing


# retrieval


def test_the_three_tiers_are_given_in_the_order_in_which_they_are_worth_room() -> None:
    fact = Fact(subject="User", relation="home", object="Oslo")
    hot = [note("home", axis(0), "I live in Oslo.", facts=(fact,)), *(note(f"h{i}", axis(0)) for i in range(3))]
    made = tiers(*hot, note("cool", axis(1)), LAST, note("latest", axis(5)), stm_pages=2, top_segments=1, top_pages=1)
    everything = {one.id for one in hot} | {"cool", "last", "latest"}
    found = made.recall(axis(1), frozenset({"cool"}), everything)
    assert [one.id for one in found] == ["latest", "last", "home", "cool", "h0", "h1", "h2"]
    where = [next(tier for tier in ("short", "profile", "middle", "knowledge") if tier in one.why) for one in found]
    assert where == ["short"] * 2 + ["profile", "middle"] + ["knowledge"] * 3
    assert found[3].score == 1.0 and found[3].why["f_score"] == 2.0


def test_no_more_segments_pages_and_statements_are_taken_than_the_paper_says() -> None:
    """Of twelve segments of three pages the five nearest are looked into, and of their fifteen pages ten are taken."""
    near = [0.9 - n / 20 for n in range(12)]  # to the query
    notes = [note(f"s{n}p{p}", toward(0, near[n], other=n + 1), f"s{n} w{n}") for n in range(12) for p in range(3)]
    best, every = [f"s{n}p{p}" for n in range(5) for p in range(3)], set(ids(notes))

    def found(made: MemoryOSTiers) -> list[str]:
        return [one.id for one in made.recall(axis(0), frozenset(), every)]

    made = tiers(*notes, LAST, theta=0.95)
    assert len(made.topics) == 12
    assert found(made) == best[:10]
    assert found(tiers(*notes, LAST, theta=0.95, top_pages=100)) == best
    for topic in list(made.topics.values())[:6]:
        made.use([topic.pages[0].query.id], NOON)  # 1 + 3 + 1 = 5: promoted
    assert len(made.knowledge) == 18
    assert found(made) == best[:10]  # the ten nearest of knowledge are the same


def test_what_is_not_allowed_takes_nobodys_place() -> None:
    hidden = [note(f"h{n}", toward(0, 0.99, other=n + 1)) for n in range(8)]
    made = tiers(*hidden, note("mine", axis(100)), LAST, theta=1.2)
    assert [one.id for one in made.recall(axis(0), frozenset(), {"mine"})] == ["mine"]


def test_a_page_is_found_with_its_answer() -> None:
    said = [note("q", axis(0), "Where?", "Ann", "t"), note("a", axis(1), "There.", "Bob", "t"), LAST]
    found = [one.id for one in tiers(*said).recall(axis(1), frozenset(), {"q", "a"})]
    assert found == ["q", "a"]


def test_vectors_are_revised_as_long_as_nothing_was_decided_by_them() -> None:
    made = tiers(note("a", axis(0)), note("b", axis(1)), stm_pages=1)
    made.revise({"a": axis(7), "b": axis(0)})
    assert [page.query.vector[0] for page in made.short] == [1.0]
    made.keep(LAST)
    assert middle(made) == [["a", "b"]]


# what is read in a turn, chains and the profile


def test_what_is_read_in_a_turn_belongs_to_its_page_wherever_that_lies() -> None:
    said = [note("q", axis(0), "Where do you live?", "Ann", "t"), note("a", axis(1), "In Oslo.", "Bob", "t")]
    made = tiers(said[0], note("fact", axis(2), "Ann asks.", "Ann", turn="q"), said[1])
    assert [ids(page.notes) for page in made.short] == [["q", "a", "fact"]]
    made.keep(LAST)
    made.keep(note("late", axis(3), "Bob lives in Oslo.", "Bob", turn="a"))
    assert middle(made) == [["q", "a", "fact", "late"]] and [page.query.id for page in made.short] == ["last"]
    assert not made.settled("last") and made.settled("late")


def test_a_part_of_a_page_that_was_promoted_is_learnt_as_it_comes() -> None:
    home = Fact(subject="Ann", relation="home", object="Oslo")
    made = tiers(*(note(f"n{i}", axis(0), speaker="Ann") for i in range(4)), LAST)
    assert len(made.knowledge) == 4
    made.keep(note("home", axis(1), "I live in Oslo.", "Ann", turn="n2", facts=(home,)))
    assert ids([*made.profile.values()]) == ["home"] and len(made.knowledge) == 4


def test_the_line_of_a_chain_is_renewed_as_it_grows() -> None:
    """boat is in three pages and engine in two: 4 / 2 of red, 6 / √5 of broke and 5 / 2 of the third."""
    made = tiers(note("a", axis(0), "The boat is red.", thread="t"), stm_pages=7)
    assert made.meta(made.short[-1]).line == "The boat is red."
    made.keep(note("b", axis(1), "The boat engine broke.", thread="t"))
    made.keep(note("c", axis(2), "Boat engine. Why?", thread="t"))
    assert len({page.chain for page in made.short}) == 1
    assert made.meta(made.short[0]).line == "The boat engine broke."
    made.keep(note("d", axis(3), "I baked bread.", thread="t"))
    assert made.meta(made.short[-1]).line == "I baked bread."


def chained(without: Any = None) -> MemoryOSTiers:
    """Of two pages that are as near to a question about boats, the first is in a chain about them."""
    made = MemoryOSTiers(MemoryOSConfig(), without)
    for one in [
        note("boat", axis(0), "The boat has a cabin.", thread="t"),
        note("in", axis(1), "The cabin is cold.", thread="t"),
        note("out", axis(2), "The kitchen is cold.", thread="u"),
    ]:
        made.keep(one)
    return made


def test_a_page_is_found_by_its_chain() -> None:
    def found(made: MemoryOSTiers) -> dict[str, float]:
        every = {"boat", "in", "out"}
        return {one.id: one.score for one in made.recall(axis(0), frozenset({"boat"}), every, k=3)}

    whole, apart = found(chained()), found(chained("chain"))
    assert whole["in"] > whole["out"] and apart["in"] == apart["out"]


def test_a_search_goes_on_beyond_the_pages_of_a_request_and_gives_one_of_each_turn() -> None:
    notes = [note(f"n{n}", toward(0, 0.95 - n / 50, other=n + 1), f"w{n}") for n in range(40)]
    made = tiers(*notes, note("part", axis(0), "w1", turn="n1"), LAST, theta=1.5, segments=40)
    every = {*ids(notes), "part", "last"}
    assert len(made.recall(axis(0), frozenset(), every)) == 1 + 5  # of the queue, and of five segments
    found = [one.id for one in made.recall(axis(0), frozenset(), every, k=40)]
    assert found[:2] == ["part", "n0"] and "n1" not in found and len(found) == 40


@pytest.mark.parametrize(
    "without, short, segments, known",
    [
        (None, 2, 1, 4),
        ("stm", 1, 1, 4),
        ("mtm", 2, 0, 4),
        ("lpm", 2, 1, 0),
        ("chain", 2, 1, 4),
    ],
)
def test_each_part_can_be_switched_off(without: Any, short: int, segments: int, known: int) -> None:
    made = MemoryOSTiers(MemoryOSConfig(stm_pages=2), without)
    for n in range(6):
        made.keep(note(f"n{n}", axis(0), f"n{n}"))
    assert (len(made.short), len(made.topics), len(made.knowledge)) == (short, segments, known)


@pytest.mark.parametrize(
    "texts, found",
    [
        (["I love hiking."], {"Sports Interest": "Low"}),
        (["I love hiking.", "I enjoy running every day."], {"Sports Interest": "Medium"}),
        (["I love hiking.", "I like to swim.", "My favourite sport is tennis."], {"Sports Interest": "High"}),
        (["I love hiking.", "I like to swim.", "I hate sports."], {"Sports Interest": "Low"}),
        (["Do you like hiking?"], {}),
        (["The match was on Monday."], {}),
        (["I prefer short answers."], {"Conciseness": "Low"}),
        (["我喜欢音乐。"], {"Music Interest": "Low"}),
    ],
)
def test_the_profile_has_the_dimensions_that_are_stated(texts: list[str], found: dict[str, str]) -> None:
    made = tiers(*(note(f"n{i}", axis(0), text) for i, text in enumerate(texts)), LAST, tau=1)
    every = {f"n{i}" for i in range(len(texts))}
    assert {name: how for (_, name), how in made.portrait(every).items()} == found
    assert made.portrait(set()) == {}


def test_the_dimensions_are_those_of_the_released_prompt() -> None:
    assert [len(group) for group in DIMENSIONS.values()] == [16, 8, 27]


def test_the_prompt_has_the_parts_of_the_paper() -> None:
    home = Fact(subject="Ann", relation="home", object="Oslo")
    hot = [note("home", axis(0), "I live in Oslo.", "Ann", facts=(home,)), note("h", axis(0), "I love hiking.", "Ann")]
    hot += [note("bot", axis(0), "I can book trains.", "assistant"), note("more", axis(0), "Rain again.", "Ann")]
    made = tiers(*hot, note("cool", axis(1), "The boat is red.", "Bob", said=NOON), LAST, top_segments=1, top_pages=1)
    every = {one.id for one in hot} | {"cool", "last"}
    assert made.prompt(made.recall(axis(1), frozenset(), every), every).split("\n") == [
        "What the assistant has said of itself and done:", "[2025-05-22] assistant: I can book trains.", "",
        "Profile of who speaks:", "[2025-05-22] Ann: I live in Oslo.", "ann: Sports Interest (Low)", "",
        "Known besides:", "[2025-05-22] Ann: I love hiking.", "[2025-05-22] Ann: Rain again.", "",
        "Earlier conversation on this:", "[2025-05-22] Bob: The boat is red.", "In short: The boat is red.", "",
        "The conversation just now:", "[2025-05-22] User: last",
    ]  # fmt: skip
