"""What `fill` says, `parse` and `asked` must read back."""

from __future__ import annotations

import random
import re

import pytest
import small_world

from memos.cube import Fact
from memos.interface.reading.phrasebook import parse, parse_question, phrasebook
from memos.lazy import pattern


def facts(sentence: str, speaker: str = "") -> list[tuple[str, str, str, bool]]:
    return [(fact.subject, fact.relation, fact.object, update) for fact, update in parse(sentence, speaker)]


def test_what_the_small_world_states_is_read_back() -> None:
    rng, words, book = random.Random(7), small_world.Words(), phrasebook()
    found = expected = hits = 0
    for relation in sorted(book):
        for _ in range(3 * len(book[relation].says)):
            subject = rng.choice([words.name(rng), words.name(rng), small_world.SPEAKER])
            update = rng.random() < 0.5
            fact = small_world.Fact(subject, relation, words.value(rng, relation))
            read = facts(small_world.state(rng, fact, update))
            found, expected = found + len(read), expected + 1
            hits += (subject, relation, fact.object, update) in read
    assert hits / found >= 0.98
    assert hits / expected >= 0.98


@pytest.mark.parametrize("relation", sorted(phrasebook()))
def test_every_form_of_a_relation_is_read_back(relation: str) -> None:
    rng, words, forms = random.Random(3), small_world.Words(), phrasebook()[relation]
    obj = words.value(rng, relation)
    for subject, name in (("Mira", "Mira"), ("Anna Berg", "Anna Berg"), ("I", "Tom")):
        for form in forms.says + forms.updates:
            assert facts(forms.fill(form, subject, obj) + ".", "Tom") == [(name, relation, obj, form in forms.updates)]
        for form in forms.asks:
            assert parse_question(forms.fill(form, subject), "Tom") == [
                Fact(subject=name, relation=relation, object="")
            ]
    for form in forms.who:
        assert parse_question(forms.fill(form, "", obj)) == [Fact(subject="", relation=relation, object=obj)]


@pytest.mark.parametrize(
    "sentence, fact",
    [
        ("Mira lives in Porto now.", ("Mira", "city", "Porto", True)),
        ("By the way, my job is nurse, I think.", ("Tom", "job", "nurse", False)),
        ("Oh, the code for my locker is 4711!", ("Tom", "code", "4711", False)),
        ("I work as an old nurse in Porto", ("Tom", "job", "old nurse", False)),
        ("I'm allergic to walnuts, as you know.", ("Tom", "allergy", "walnuts", False)),
        ("i have a cat as a pet", ("Tom", "pet", "cat", False)),
        ("Green tea is what I like to drink.", ("Tom", "drink", "green tea", False)),
        ("Earl Grey is what I like to drink.", ("Tom", "drink", "Earl Grey", False)),
        ("Mira celebrates her birthday on 3 May.", ("Mira", "birthday", "3 May", False)),
        ("My pet is a grey cat.", ("Tom", "pet", "grey cat", False)),
        ("My favorite color is teal and I wear nothing else.", ("Tom", "colour", "teal", False)),
        ("My colleague Nadia works for Acme.", ("Nadia", "employer", "Acme", False)),
        ("Mira says that the home city is Oslo.", ("Mira", "city", "Oslo", False)),
        ("Will has just adopted a dog.", ("Will", "pet", "dog", True)),
        ("Yes, Mira's new boss is Anna Berg.", ("Mira", "boss", "Anna Berg", True)),
    ],
)
def test_a_fact_is_read_as_people_say_it(sentence: str, fact: tuple[str, str, str, bool]) -> None:
    assert facts(sentence, "Tom") == [fact]


@pytest.mark.parametrize(
    "sentence",
    [
        "My boss is very strict.",
        "My job is to look after children.",
        "I live in a hurry.",
        "I don't live in Oslo.",
        "I used to live in Oslo.",
        "She lives in Oslo.",
        "Who is my boss?",
        "Where do I live?",
        "You live in Oslo.",
        "",
    ],
)
def test_what_states_no_fact_gives_none(sentence: str) -> None:
    assert facts(sentence, "Tom") == []


def test_without_a_speaker_i_states_nothing_and_a_name_in_front_is_the_speaker() -> None:
    assert facts("I live in Oslo.") == []
    assert facts("Mira: Well, I live in Oslo.") == [("Mira", "city", "Oslo", False)]


def test_a_sentence_can_state_two_facts() -> None:
    assert facts("I live in Oslo and I work as a nurse.", "Tom") == [
        ("Tom", "city", "Oslo", False),
        ("Tom", "job", "nurse", False),
    ]


def test_held_out_forms_are_a_fixed_part() -> None:
    city = phrasebook()["city"]
    held = ["Do you know {s's} {noun}?", "{s's} {noun}?", "Where is {s's} home?", "Who lives in {o}?"]
    assert [form for form in city.asks + city.who if form in city.held_out] == held


def test_an_expression_is_compiled_when_it_is_used() -> None:
    broken = pattern("(")
    with pytest.raises(re.error):
        broken.search("")
    read = pattern("my (cat)", re.IGNORECASE)
    assert [read.sub("", "My cat"), read.groups, read.pattern] == ["", 1, "my (cat)"]


@pytest.mark.parametrize(
    ("question", "relation"),
    [
        ("Where do I work?", "employer"),
        ("where do i work", "employer"),
        ("whats my job?", "job"),
        ("who's my boss?", "boss"),
        ("What’s my sister’s name?", "sister"),
        ("do I have any allergies?", "allergy"),
    ],
)
def test_a_question_is_understood_in_words_that_no_promotion_uses(question: str, relation: str) -> None:
    assert parse_question(question, "User") == [Fact(subject="User", relation=relation, object="")]


def test_what_is_only_heard_is_no_probe() -> None:
    asked = {form for relation in phrasebook().values() for form in (*relation.asks, *relation.who)}
    assert not asked.intersection(form for relation in phrasebook().values() for form in relation.heard)
