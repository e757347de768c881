"""What a group is asked, how much of it that is, and what is refused because nothing would tell what was learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from memos import MemOS
from memos.config import Config, DistilConfig, GateConfig
from memos.cube import Form, MemCube, Probe
from memos.errors import InputError, NoProbes
from memos.operation.forms.lesson_maker import ASKABLE, LessonMaker
from memos.operation.forms.lessons import QUESTIONS, GroupStatement, statements_of
from tests.doubles import BRIEF, BriefReader

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
FACT = "I live in Lisbon."
BOAT = "We painted the old rowing boat green before the regatta."
PIER = "Zoltan carried eleven lanterns down to the pier."
ARROW = "Mira -> lives in Lisbon now"  # that no rule reads, and the small model does
TRAINED = Probe(question="Where does Mira live?", answer="Lisbon")
HELD_OUT = Probe(question="What is Mira's home city?", answer="Lisbon", held_out=True)


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(Config(distil=BRIEF), vault=tmp_path_factory.mktemp("lessons") / "vault") as kernel:
        kernel.parts.reader = BriefReader()
        yield kernel


def kept(memos: MemOS, user: str, *said: str) -> list[MemCube]:
    """Memories of what was said, one each: what turns say beside statements is not what is tested."""
    return [cube for words in said for cube in memos.within(user).add(words)]


def maker(memos: MemOS, **config: object) -> LessonMaker:
    return LessonMaker(memos.parts.reader, memos.host, DistilConfig.model_validate(config))


def asking(monkeypatch: pytest.MonkeyPatch, *probes: Probe) -> None:
    """What a package of somebody else might bring: it asks this about each statement."""

    def ask(statements: Sequence[GroupStatement]) -> Mapping[GroupStatement, Sequence[Probe]]:
        return {one: probes for one in statements if not one.asked}

    monkeypatch.setattr(QUESTIONS, "get", lambda name: ask)


def test_what_the_phrasebook_reads_is_asked_as_before_and_nothing_else(memos: MemOS, ada: str) -> None:
    cubes = kept(memos, ada, "Mira lives in Lisbon.", "Tom works as a pilot.")
    made = maker(memos).of(cubes)
    assert list(made.lessons) == memos.parts.reader.lessons([cube.payload for cube in cubes])
    assert made.askable == 1 and len(made.statements) == 2


def test_any_text_is_asked_about_without_a_model(memos: MemOS, ada: str) -> None:
    made = maker(memos).of(kept(memos, ada, BOAT, PIER), checked=False)
    assert made.askable == 1 and {x.probe.held_out for x in made.lessons} == {True, False}
    assert {x.memories[0] for x in made.lessons} == {BOAT, PIER}


def test_a_question_counts_if_the_model_answers_it_over_the_memory_alone(
    memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Probe(question="Where does Mira live at all?", answer="Oslo", held_out=True)
    by_heart = Probe(question="What is the capital of France?", answer="Paris")
    asking(monkeypatch, TRAINED, HELD_OUT, wrong, by_heart)
    made = maker(memos).of(kept(memos, ada, ARROW))
    assert {x.probe for x in made.lessons} == {TRAINED, HELD_OUT} and made.askable == 1


@pytest.mark.parametrize("only", [TRAINED, HELD_OUT])
def test_a_statement_needs_a_question_for_training_and_one_for_the_gate(
    memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch, only: Probe
) -> None:
    asking(monkeypatch, only)
    """One alone is neither trained nor judged, unless the gate does not ask for what is held out."""
    made = maker(memos).of(cubes := kept(memos, ada, ARROW))
    assert not made.lessons and made.askable == 0
    with pytest.raises(NoProbes, match="no question can be made"):
        maker(memos).require(made, cubes)
    lenient = maker(memos, gate=GateConfig(generality=0)).of(cubes)
    assert lenient.askable == (only is TRAINED)


def test_who_said_it_alone_tells_nothing_of_what_was_said(
    memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = "Mira"
    asking(
        monkeypatch,
        Probe(question="Who lives in Lisbon?", answer=who),
        Probe(question="Who has a home in Lisbon?", answer=who, held_out=True),
    )
    [cube] = kept(memos, ada, "Mira: I -> live in Lisbon these days, by the river")
    made = maker(memos).of([cube], checked=False)
    assert len(made.lessons) == 2 and made.askable == 0


def test_what_is_trained_must_be_what_is_proven(memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Probe(question="What runs by the town?", answer="river", held_out=True)
    asking(monkeypatch, TRAINED, other)
    made = maker(memos).of(kept(memos, ada, "Mira -> lives in Lisbon by the river"), checked=False)
    assert not made.lessons and made.askable == 0


def test_a_group_of_which_too_little_can_be_asked_is_refused(memos: MemOS, ada: str) -> None:
    """The small model cannot read gaps: of three statements it can be asked about one."""
    cubes = kept(memos, ada, "Mira lives in Lisbon.", BOAT, PIER)
    made = maker(memos).of(cubes)
    assert [s.asked for s in made.statements] == [True, False, False]
    with pytest.raises(NoProbes) as refused:
        maker(memos).require(made, cubes)
    for part in ("askable 0.333 (at least 0.5)", "1 of 3 statements", BOAT, "distil.gate.askable", "keep them as"):
        assert part in str(refused.value)
    lower = maker(memos, gate=GateConfig(askable=0.3))
    assert lower.require(made, cubes) is made


def test_own_questions_ask_about_the_whole_of_a_memory(memos: MemOS, ada: str) -> None:
    probes = (
        Probe(question="Which colour?", answer="green"),
        Probe(question="What hue?", answer="green", held_out=True),
    )
    [cube] = memos.within(ada).add(BOAT, probes=probes)
    made = maker(memos).of([cube])
    assert made.askable == 1 and {x.probe for x in made.lessons} == set(probes)


@pytest.mark.parametrize(
    "said", ["Hi", "Sounds great!", "我昨天和三个朋友去了图书馆。", "Мы вчера ездили в Казань с братом.", BOAT]
)
def test_what_cannot_be_judged_is_refused_by_name_and_its_text_answers_on(memos: MemOS, ada: str, said: str) -> None:
    mine = memos.within(ada)
    [cube] = mine.add(said)
    with pytest.raises(NoProbes, match=f"no question can be made of {cube.id}"):
        mine.promote([cube.id], "parametric")
    assert mine.cubes(form=Form.PARAMETRIC) == []
    assert mine.search(said)[0].cube.text == cube.text
    assert not memos.jobs()


def test_the_share_that_is_asked_about_is_a_score_of_what_is_published(memos: MemOS, ada: str) -> None:
    mine = memos.within(ada)
    ids = [cube.id for cube in mine.add([{"speaker": "Mira", "content": FACT}])]
    cube = mine.promote(ids, "parametric")
    assert cube.blob and cube.blob.scores[ASKABLE] == 1
    scores, short = mine.gate([cube.id], on=ids)
    assert scores[ASKABLE] == 1 and not [one for one in short if ASKABLE in one]


def test_a_name_that_nothing_provides_is_refused(memos: MemOS) -> None:
    with pytest.raises(InputError, match=r"no maker of questions 'gap'; did you mean gaps"):
        maker(memos, questions="gap")


@pytest.mark.parametrize(
    "text, stated",
    [
        ("Sounds fun!", []),
        ("Wow, Caroline! Did you walk the whole coast path?", []),
        (f"{BOAT} Was it fun? {PIER}", [BOAT, PIER]),
        ("Mira lives in Lisbon.", ["Mira lives in Lisbon."]),  # as few words as these say what can be asked for
    ],
)
def test_what_asks_and_what_says_next_to_nothing_is_no_statement(
    memos: MemOS, ada: str, text: str, stated: list[str]
) -> None:
    [cube] = kept(memos, ada, text)
    assert [one.words for one in statements_of(memos.parts.reader, cube)] == stated
