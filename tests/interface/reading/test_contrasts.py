"""What an adapter must leave alone."""

import re

import pytest

from memos.cube import Contrast, Fact
from memos.interface.reading.contrasts import contrasts
from memos.interface.reading.phrasebook import parse, parse_question

FACTS = (
    Fact(subject="Mira", relation="city", object="Geneva"),
    Fact(subject="Mira", relation="drink", object="cocoa"),
    Fact(subject="Tom", relation="job", object="baker"),
)
KNOWN = [f"Where does Zephyrine{n} live?" for n in range(40)]


@pytest.fixture(scope="module")
def made() -> list[Contrast]:
    return contrasts(FACTS, KNOWN, seed=3)


def _names(prompts: list[Contrast]) -> set[str]:
    text = " ".join(" ".join((p.question, *p.memories)) for p in prompts)
    return set(re.findall(r"\b(?:Alice|Bruno|Carla|Dennis|Edith|Felipe|Grace|Hassan|Irene|Jakob|Kira|Leon)\b", text))


def test_names_of_the_tests_are_never_trained_on(made: list[Contrast]) -> None:
    trained, tested = _names([p for p in made if not p.held_out]), _names([p for p in made if p.held_out])
    assert trained and tested and not trained & tested


def test_known_questions_are_split_between_training_and_tests(made: list[Contrast]) -> None:
    trained = {p.question for p in made if not p.held_out} & set(KNOWN)
    tested = {p.question for p in made if p.held_out} & set(KNOWN)
    assert trained == set(KNOWN[0::2]) and tested == set(KNOWN[1::2])


def test_nothing_that_is_to_be_learnt_is_asked_without_a_context(made: list[Contrast]) -> None:
    learnt = {(f.subject, f.relation) for f in FACTS}
    closed = [fact for p in made if not p.memories for fact in parse_question(p.question)]
    assert closed and not {(f.subject, f.relation) for f in closed} & learnt


def test_a_third_of_the_contexts_contradict_a_fact_and_ask_for_it(made: list[Contrast]) -> None:
    learnt = {(f.subject, f.relation): f.object for f in FACTS}
    overriding = 0
    for prompt in (p for p in made if p.memories):
        (wanted,) = {(f.subject, f.relation) for f in parse_question(prompt.question)} or {("", "")}
        said = {(f.subject, f.relation): f.object for line in prompt.memories for f, _ in parse(line)}
        assert wanted in said, prompt
        if wanted in learnt:
            assert said[wanted] != learnt[wanted]
            overriding += 1
    assert overriding == pytest.approx(sum(bool(p.memories) for p in made) / 3, abs=2)


def test_the_same_seed_makes_the_same_prompts(made: list[Contrast]) -> None:
    assert contrasts(FACTS, KNOWN, seed=3) == made
    assert contrasts(FACTS, KNOWN, seed=4) != made


def test_without_facts_there_are_prompts_all_the_same() -> None:
    assert contrasts((), [], seed=0)
