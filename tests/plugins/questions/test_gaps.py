"""Questions of any text: words are left out and asked for, so that the gate shares no wording with training."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from memos.bench.moves.askable import found
from memos.cube import Probe
from memos.operation.forms.lessons import QUESTIONS, GroupStatement
from memos.plugins.questions.gaps import ask, wording

DAY = datetime(2023, 5, 8, tzinfo=timezone.utc)
RACE = "I ran a charity race for mental health last Saturday and three friends came along."
TOWN = "We visited Woodhaven, a quiet town with a lighthouse."
POTS = "My pottery class fired twelve bowls in the old kiln."
TALK = (("Nora", RACE), ("Elias", TOWN), ("Nora", POTS))


def group(*said: tuple[str, str], day: datetime | None = DAY) -> list[GroupStatement]:
    return [
        GroupStatement(f"{who}, 8 May 2023: {words}" if day else f"{who}: {words}", words, who, day)
        for who, words in said
    ]


def about(words: str, *said: tuple[str, str]) -> list[Probe]:
    made = ask(group(*(said or TALK)))
    return next((list(probes) for one, probes in made.items() if one.words == words), [])


def test_every_statement_is_asked_about_in_training_and_held_out() -> None:
    made = ask(group(*TALK))
    assert [one.words for one in made] == [RACE, TOWN, POTS]
    for one, probes in made.items():
        assert all(probe.holds(one.memory) for probe in probes), one.words
        assert not [probe for probe in probes if probe.holds(probe.question)], "a question gives its answer away"
        for answer in {probe.answer for probe in probes}:
            assert {probe.held_out for probe in probes if probe.answer == answer} == {True, False}, answer


def test_what_is_held_out_shares_no_wording_with_what_is_trained() -> None:
    probes = [probe for of_one in ask(group(*TALK)).values() for probe in of_one]
    trained = {run for p in probes if not p.held_out for run in wording(p.question)}
    held_out = {run for p in probes if p.held_out for run in wording(p.question)}
    assert trained and held_out and not trained & held_out


def test_names_and_numbers_are_no_wording() -> None:
    """Two questions about one thing name it both."""
    assert wording("On which day was Nora Weiss in Oslo?") == {("on", "which", "day"), ("which", "day", "was")}
    assert wording("What is the date, 8 May 2023, of it?") == {("what", "is", "the"), ("is", "the", "date")}
    assert ("i", "ran", "a") in wording('Who said "then I ran a mile"?')


@pytest.mark.parametrize(
    "words, kind, answer",
    [
        (RACE, "time", "last Saturday"),
        (RACE, "number", "three friends"),
        (TOWN, "name", "Woodhaven"),
        (POTS, "number", "twelve bowls"),
        ("I finally read the book “Inner Light” by the sea.", "name", "Inner Light"),
        ("The doctor put my left arm in a plaster cast.", "thing", "plaster cast"),
    ],
)
def test_a_name_a_number_a_time_or_a_thing_is_asked_for(words: str, kind: str, answer: str) -> None:
    if answer == "three friends":  # a statement is asked for two things at most: here with no time in it
        words = words.replace(" last Saturday", "")
    probes = about(words, ("Nora", words), ("Elias", "The bakery sells rye bread."))
    asked = [p.question for p in probes if p.answer == answer]
    assert any(kind in question.split() for question in asked), probes


def test_who_said_it_and_when_is_asked_where_it_could_be_another() -> None:
    answers = [p.answer for p in about(RACE)]
    assert "Nora" in answers and "8 May 2023" in answers
    assert "Nora" not in {p.answer for p in about(RACE, ("Nora", RACE))}  # she alone speaks
    of_no_day = ask(group(*TALK, day=None))
    assert "8 May 2023" not in {p.answer for probes in of_no_day.values() for p in probes}


def test_words_that_stand_in_two_statements_point_at_neither() -> None:
    """ "I went to the market with ..." is completed in two ways; where both say the same, it is not in doubt."""
    market = ("I went to the market with Zoltan.", "I went to the market with Ophelia.")
    made = ask(group(*(("Nora", words) for words in market)))
    assert not {"Zoltan", "Ophelia"} & {p.answer for probes in made.values() for p in probes}
    beside = about(market[0], ("Nora", market[0]), ("Nora", "We went to the fair with Ophelia."))
    assert "Zoltan" in {p.answer for p in beside}


def test_what_is_asked_about_already_is_left_alone() -> None:
    first, *others = group(*TALK)
    asked = replace(first, asked=True)
    assert asked not in ask([asked, *others])


@pytest.mark.parametrize(
    "words", ["Hi!", "", "   ", "...", "我昨天和三个朋友去了图书馆。", "Мы вчера ездили в Казань с братом."]
)
def test_nothing_is_asked_about_what_says_nothing_or_in_another_script(words: str) -> None:
    assert ask(group(("Nora", words))) == {}


def test_text_without_a_speaker_is_asked_about_too() -> None:
    words = "The lighthouse keeper painted the eastern stairs green in spring."
    [probes] = ask([GroupStatement(words, words)]).values()
    assert {p.held_out for p in probes} == {True, False}
    assert not any("said" in p.question for p in probes)


def test_what_i_have_said_is_asked_of_me() -> None:
    words = "I keep the spare key under the blue flowerpot."
    [probes] = ask([GroupStatement(f"User: {words}", words, "User")]).values()
    assert any("what I said" in p.question for p in probes) and not any("User" in p.question for p in probes)


def test_questions_are_the_same_in_every_run() -> None:
    assert ask(group(*TALK)) == ask(group(*TALK))


def test_questions_of_one_group_find_no_answer_in_another() -> None:
    other = [one.memory for one in group(("Nora", "The tram was late."), ("Elias", "Our dog chased two squirrels."))]
    for one, probes in ask(group(*TALK)).items():
        assert all(found(probe, [one.memory], [one.memory]) for probe in probes)
        assert not any(found(probe, [one.memory], other) for probe in probes)


def test_it_is_found_by_its_name() -> None:
    assert QUESTIONS.get("gaps") is ask
