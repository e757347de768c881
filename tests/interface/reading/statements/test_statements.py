"""What a sentence states, and how it holds."""

from __future__ import annotations

import pytest

from memos.interface.reading.statements.readings import english_readings
from memos.interface.reading.statements.statements import _forms_of, read


def facts(sentence: str, speaker: str = "Tom") -> list[tuple[str, str, str, str]]:
    return [(f.subject, f.relation, f.object, f.mode) for f in read(sentence, speaker).facts]


@pytest.mark.parametrize(
    "sentence, fact",
    [
        ("I moved to Denver last month.", ("Tom", "city", "Denver", "now")),
        ("Guess what, we've relocated to Lyon!", ("Tom", "city", "Lyon", "now")),
        ("i live in oslo", ("Tom", "city", "oslo", "is")),
        ("hello, i'm Maya", ("Tom", "name", "Maya", "is")),
        ("im sam, and i bake", ("Tom", "name", "sam", "is")),
        ("call me Sam", ("Tom", "name", "Sam", "is")),
        ("I got a new job at Google.", ("Tom", "employer", "Google", "now")),
        ("I also work at Northwind on weekends.", ("Tom", "employer", "Northwind", "also")),
        ("Mira no longer plays tennis.", ("Mira", "sport", "tennis", "ended")),
        ("I don't drink coffee any more.", ("Tom", "drink", "coffee", "ended")),
        ("I stopped playing tennis.", ("Tom", "sport", "tennis", "ended")),
        ("I've given up the flute.", ("Tom", "", "flute", "ended")),
        ("I quit my job.", ("Tom", "employer", "", "ended")),
        ("I quit my job at Acme.", ("Tom", "employer", "Acme", "ended")),
        ("I'm no longer a nurse.", ("Tom", "job", "nurse", "ended")),
        ("I used to live in Rome.", ("Tom", "city", "Rome", "was")),
        ("I lived in Rome until 2019.", ("Tom", "city", "Rome", "was")),
        ("I will move to Berlin next year.", ("Tom", "city", "Berlin", "will")),
        ("My brother moved to London.", ("Tom's brother", "city", "London", "now")),
        ("My daughter's favourite colour is red.", ("Tom's daughter", "colour", "red", "is")),
        ("My dentist is Dr. Kim.", ("Tom", "dentist", "Dr Kim", "is")),
        ("Otto and I are no longer friends.", ("Tom", "friend", "Otto", "ended")),
        ("We adopted a puppy.", ("Tom", "pet", "puppy", "also")),
        ("I hate olives.", ("Tom", "likes", "olives", "ended")),
        ("i earn 52k a year", ("Tom", "salary", "52k", "is")),
        ("I earn about $85,000 annually.", ("Tom", "salary", "$85,000", "is")),
        ("I make $4,000 a month now.", ("Tom", "salary", "$4,000", "now")),
        ("my wage is 11.44 an hour", ("Tom", "salary", "11.44 an hour", "is")),
        ("Nadia: I live in Oslo.", ("Nadia", "city", "Oslo", "is")),
        ("I live in 北京。", ("Tom", "city", "北京", "is")),
    ],
)
def test_a_fact_is_read_with_how_it_holds(sentence: str, fact: tuple[str, str, str, str]) -> None:
    assert facts(sentence, "" if sentence.startswith("Nadia:") else "Tom") == [fact]


@pytest.mark.parametrize(
    "sentence, found",
    [
        ("I have a cat and a dog.", [("Tom", "pet", "cat", "is"), ("Tom", "pet", "dog", "is")]),
        ("I like jazz, blues and soul.", [("Tom", "likes", kind, "is") for kind in ("jazz", "blues", "soul")]),
        ("I moved from Oslo to Rome.", [("Tom", "", "Oslo", "ended"), ("Tom", "city", "Rome", "now")]),
        ("I switched from coffee to matcha.", [("Tom", "", "coffee", "ended"), ("Tom", "use", "matcha", "now")]),
        ("I lived in Rome; now I live in Oslo.", [("Tom", "city", "Rome", "was"), ("Tom", "city", "Oslo", "now")]),
        ("I sold Gerald to Bo.", [("Tom", "own", "Gerald", "ended"), ("Tom", "car", "Gerald", "ended")]),
        ("i sold gerald", [("Tom", "own", "gerald", "ended"), ("Tom", "car", "gerald", "ended")]),
        ("I sold bread.", []),
        ("i sold it", []),
        ("I earn $85,000 gross", []),
        ("i make 3 cakes a week", []),
        ("i earn good money", []),
        ("I work as a nurse at Acme.", [("Tom", "job", "nurse", "is"), ("Tom", "employer", "Acme", "is")]),
    ],
)
def test_a_sentence_can_state_several(sentence: str, found: list[tuple[str, str, str, str]]) -> None:
    assert sorted(facts(sentence)) == sorted(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "I might move to Berlin.",
        "If I got the job, I would move to Berlin.",
        "Maybe I'll live in Rome one day.",
        "Do I live in Rome?",
        'Tom said "I live in Rome now".',
        "Tom says I should move to Rome.",
        "She moved to Miami.",
        "I don't want to live in Rome.",
        "I didn't play tennis today.",
        "I don't eat meat on Fridays.",
        "I can't stop drinking coffee.",
        "I almost quit coffee last year.",
        "I will never quit my job at Acme.",
        "I became a father.",
        "My cat is asleep.",
        "My first car was a Fiat.",
        "I don't like running in the rain.",
    ],
)
def test_doubt_hearsay_and_what_is_no_end_state_nothing(sentence: str) -> None:
    assert facts(sentence) == []


def test_what_has_one_value_at_a_time_is_known_by_relation_and_form() -> None:
    sole = {s: read(s, "Tom").facts[0].sole for s in ("My favourite food is ramen.", "I like to eat ramen.")}
    assert sole == {"My favourite food is ramen.": True, "I like to eat ramen.": False}


def test_a_correction_states_anew_what_has_one_value() -> None:
    assert read("I live in Rome.", "Tom", corrects=True).facts[0].mode == "now"
    assert read("I like rice.", "Tom", corrects=True).facts[0].mode == "is"


def test_what_no_form_reads_is_told() -> None:
    assert read("I live in Oslo, my wife met Julia at the port.", "Tom").unread == ("my wife met Julia at the port",)


@pytest.mark.parametrize(
    "clause",
    [
        "I AM A BIG FAN OF jazz",
        "Mira has an friend called Bo",
        "chess is one of my hobbies of mine",
        "I joined Acme",
        "I switches job to Acme",
        "I watch films",
        "I go to Ghent University",
        "I moved back into Oslo",
    ],
)
def test_a_form_that_fits_is_not_passed_over_for_its_words(clause: str) -> None:
    fits = [form for form in english_readings().forms if form.regex.match(clause)]
    assert fits and [form for form, _ in _forms_of(clause)] == fits


@pytest.mark.parametrize("sentence", ["I'm Dutch.", "I'm tired.", "I'm lost", "call me tomorrow", "I'm Anna's sister"])
def test_what_somebody_is_is_no_name(sentence: str) -> None:
    assert not [fact for fact in facts(sentence) if fact[1] == "name"]
