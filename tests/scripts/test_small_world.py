"""The generated text keeps its promises: what is held out, what is answered, what comes last."""

import random
import re

import pytest
import small_world
from small_world import SPEAKER, UNKNOWN, WORLD, WORLD_NAMES, Scene, Words, held_out, scene

from memos.interface.reading.phrasebook import phrasebook

LISTS = (
    "NAMES SURNAMES PLACES JOBS DRINKS FOODS PETS HOBBIES COLOURS INSTRUMENTS LANGUAGES SPORTS ALLERGIES CARS "
    "ADJECTIVES TITLE_NOUNS FIRMS"
).split()
WORLD_ANSWERS = {fact.object for fact in WORLD}


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


# words of the sentences themselves, which a held-out value may happen to share ("at home", "The coffee machine")
GRAMMAR = set().union(
    *(words_of(f"{r.noun} {form}") for r in phrasebook().values() for form in r.says + r.updates + r.asks + r.who),
    *(words_of(text) for text in small_world.CHATTER + small_world.LEADS + small_world.TAILS),
    words_of(SPEAKER),
    words_of(UNKNOWN),
)


def drawn(n: int = 200, words: Words = Words(), facts: int = 8, **shares: float) -> list[Scene]:
    return [scene(random.Random(f"test:{i}"), facts, 12, words, **shares) for i in range(n)]


def parts(scenes: list[Scene]) -> set[str]:
    """The names and values of the scenes' facts, as they are drawn: a date or a code whole, the rest word by word."""
    facts = [f for s in scenes for f in s.facts]
    whole = {f.object for f in facts if f.relation in ("birthday", "code")}
    subjects = {f.subject for f in facts} - {SPEAKER, *WORLD_NAMES}
    return (
        whole
        | {w for text in subjects for w in text.split()}
        | {w for f in facts if f.object not in whole for w in f.object.split()}
    )


def test_held_out_words_never_appear_in_training_scenes():
    listed = {word.lower() for name in LISTS for word in getattr(small_world, name) if held_out(word)}
    assert len(listed) >= 20
    shown = {
        w
        for s in drawn()
        for text in [*s.lines, *(f"{q.text} {q.answer}" for q in s.questions)]
        for w in words_of(text)
    }
    assert not shown & (listed - GRAMMAR)


def test_no_name_or_value_of_a_training_fact_is_held_out():
    assert not [word for word in parts(drawn()) if held_out(word)]


def test_every_name_and_value_of_an_unseen_scene_is_held_out():
    assert all(held_out(word) for word in parts(drawn(words=Words(unseen=True))))


@pytest.mark.parametrize("words", [Words(), Words(unseen=True)])
def test_every_answer_is_in_the_memory_or_unknown_or_in_the_little_world(words):
    for s in drawn(words=words):
        memory = "\n".join(s.lines).lower()
        for q in s.questions:
            match q.kind:
                case "unknown":
                    assert q.answer == UNKNOWN
                case "world":
                    assert q.answer in WORLD_ANSWERS
                case _:
                    assert q.answer.lower() in memory


def test_an_unknown_question_asks_for_what_no_fact_says():
    for s in drawn(unknown=1.0, world=0.0):
        said = {(f.relation, form): f for f in s.facts for form in phrasebook()[f.relation].asks}
        answered = {
            phrasebook()[relation].fill(form, "I" if f.subject == SPEAKER else f.subject)
            for (relation, form), f in said.items()
        }
        assert not answered & {q.text for q in s.questions}


def test_the_value_in_force_is_the_last_one_said():
    changed = 0
    for s in drawn(updated=0.8, chatter=0.0):
        memory = "\n".join(s.lines)
        for fact in s.facts:
            # the generic form is the one that is easy to read back
            noun = phrasebook()[fact.relation].noun
            said = f"{re.escape(fact.subject)}'s {noun} is (?!(?:now|called|really on) )([^.!,]+)"
            for earlier in re.finditer(said, memory):
                if earlier[1] != fact.object:
                    changed += 1
                    assert fact.object.lower() in memory[earlier.end() :].lower()
    assert changed > 100


def test_a_reversed_question_has_one_answer():
    for s in drawn(who=1.0, world=0.0, unknown=0.0):
        objects = [f.object for f in s.facts]
        assert len(objects) == len(set(objects))
        for q in s.questions:
            if q.kind == "reversed":
                assert any(f.subject == q.answer and f.object.lower() in q.text.lower() for f in s.facts)


def test_a_seed_gives_the_same_scene_and_another_seed_another():
    first, again, other = (scene(random.Random(seed), 8, 12) for seed in ("7:1", "7:1", "7:2"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("facts", [0, 1, 4, 18])
def test_a_scene_has_as_many_facts_and_questions_as_asked_for(facts):
    for s in drawn(20, facts=facts):
        assert (len(s.facts), len(s.questions)) == (facts, 12)


@pytest.mark.parametrize("relation", phrasebook().values(), ids=lambda r: r.name)
def test_each_relation_has_six_statement_and_six_question_forms(relation):
    assert len(set(relation.says)) >= 6
    assert len(set(relation.asks)) >= 6
    assert all("{o}" in form for form in relation.says + relation.updates + relation.who)


def test_the_little_world_has_200_facts_and_contradicts_none():
    assert len(WORLD) >= 200
    assert len({(f.subject, f.relation) for f in WORLD}) == len(WORLD)
    assert small_world.world_facts() == WORLD
