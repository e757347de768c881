"""What an answer is worth: equal to the papers' code, fair to refusals, and honest about confidence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from memos.bench.qa.published import bleu1, locomo_f1, tokens, words_f1
from memos.bench.qa.records import UNKNOWN
from memos.bench.qa.refusals import is_refusal
from memos.bench.qa.scores import (
    Correction,
    QuestionKey,
    calibration,
    corrected,
    multiple_choice,
    read_corrections,
    scored,
)
from memos.errors import InputError

PAIRS = Path(__file__).with_name("published.json.gz")  # made by pairs.py, with the published functions


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_the_figures_are_those_of_the_papers_code(step: int):
    cases = json.loads(gzip.decompress(PAIRS.read_bytes()))
    assert len({(answer, str(gold)) for answer, gold, *_ in cases}) >= 1_000
    wrong = [
        (answer, gold, category, figures)
        for answer, gold, category, *published in cases[::step]
        for figures in [(locomo_f1(answer, str(gold), category), words_f1(answer, str(gold)), bleu1(answer, str(gold)))]
        if figures != pytest.approx(published, rel=0, abs=1e-9)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Dr. Vance moved. She left",
            ["dr.", "vance", "moved", ".", "she", "left"],
        ),  # an abbreviation ends no sentence
        ("Since 2019. the dog", ["since", "2019.", "the", "dog"]),  # nor does a number before a word
        ("Since 2019. 3 dogs", ["since", "2019", ".", "3", "dogs"]),
        ("e.g. maps etc. too", ["e.g", ".", "maps", "etc", ".", "too"]),  # nltk does not know these
        ("can't", ["ca", "n't"]),
        ("", []),
    ],
)
def test_words_are_split_as_by_nltk_with_its_english_model(text: str, expected: list[str]):
    assert list(tokens(text)) == expected


@pytest.mark.parametrize(
    ("answer", "gold", "category", "exact", "contained"),
    [
        ("The tea, and a cake!", "tea cake", "single-hop", 1, 1),
        ("She bought a red bicycle.", "Red bicycle", "single-hop", 0, 1),
        ("She bought a red and blue bicycle.", "red bicycle", "single-hop", 0, 0),
        ("It was in 2022.", 2022, "temporal", 0, 1),
        ("Likely no", "Likely no; she is busy", "open-domain", 1, 1),
        ("她住在北京市", "北京", "single-hop", 0, 1),
        ("O’Brien", "O'Brien", "single-hop", 1, 1),
        ("?", "!", "single-hop", 0, 0),
        ("", "tea", "multi-hop", 0, 0),
    ],
)
def test_exact_and_contained(answer: str, gold: str | int, category: str, exact: int, contained: int):
    scores = scored(answer, gold, category)
    assert (scores.exact, scores.contained) == (exact, contained)


def test_only_a_refusal_is_right_where_nothing_can_be_answered():
    refused, guessed = scored(UNKNOWN, None, "adversarial"), scored("In Rome", "In Rome", "adversarial")
    assert (refused.exact, refused.f1, refused.bleu1, refused.refused) == (1, 1, 1, True)
    assert (guessed.exact, guessed.f1, guessed.bleu1, guessed.refused) == (0, 0, 0, False)
    own_words = scored("I don't know.", None, "adversarial")
    assert (own_words.exact, own_words.f1) == (1, 0)  # LoCoMo's figure goes by its two phrases
    assert scored("I don't know.", "There is no information related to it.", "abstention", "beam").f1 == 1
    with pytest.raises(InputError, match="temporal has no gold answer"):
        scored("May", None, "temporal")


def test_the_rules_of_locomo_hold_for_locomo_alone():
    assert scored("tea", "tea, cake", "multi-hop").f1 == 0.5
    assert scored("tea", "tea, cake", "multi-hop", "beam").f1 == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "answer",
    [
        UNKNOWN,
        "**Unknown**",
        "I’m sorry, but I don't have that information.",
        "The conversation does not specify when. It only talks about the trip.",
        "The exact date is not mentioned.",
        "Cannot be determined from the given context",
        "I don't know, but you could ask her.",
        "Mira did not mention a dog.",
        "There isn't any information about that in the conversation.",
        "Neither of them says where it happened.",
        "I have no way of knowing that.",
        "None of the information provided answers this question.",
        "不知道",
        "对话中没有提到她的狗。",
        "無法回答",
    ],
)
def test_a_refusal_is_known_in_other_words(answer: str):
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "None",
        "I don't know exactly, but she moved in May 2022.",
        "The exact date is not mentioned. It was probably in May.",
        "Although the exact day is not specified, it was in June.",
        "She lives in Rome, although this is not mentioned directly.",
        "Not sure, but probably Lisbon.",
        "She did not know anyone there.",
        "The unknown author of a poem",
        "The date isn't given outright; the context suggests 5 May 2023.",
        "No details were too small for her.",
        "She isn't known for patience.",
        "Because he had no information about the train, he took the bus.",
        "不知道，可能是五月。",
        "虽然没有提到具体日期，但大概是五月。",
        "他没有狗",
        "他不知道怎么游泳",
    ],
)
def test_an_answer_with_the_words_of_a_refusal_is_none(answer: str):
    assert not is_refusal(answer)


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("b", 1), ("(B)", 1), ("B. In Rome", 1), ("The answer is (C).", 2), ("in rome", 1), ("Lives in Rome now", 1),
        ("A dog", None), ("Lisbon or Rome", None), ("E", None), ("", None), ("rome", 0),
    ],
)  # fmt: skip
def test_a_choice_is_meant_by_its_letter_or_its_text(answer: str, choice: int | None):
    assert multiple_choice(answer, ["Rome", "in Rome", "Lisbon", "Oslo"]) == choice


def test_calibration_is_the_gap_between_confidence_and_truth():
    assert calibration([None, None], [1, 0]) is None
    perfect = calibration([1.0, 0.0, None], [1, 0, 1])
    assert perfect and (perfect.error, perfect.brier, perfect.answers) == (0, 0, 2)
    half_right = calibration([0.9] * 10, [1] * 5 + [0] * 5)
    assert half_right and half_right.error == pytest.approx(0.4)
    assert half_right.brier == pytest.approx((5 * 0.01 + 5 * 0.81) / 10)
    apart = calibration([0.05, 0.95], [1, 0])  # bins that are wrong in opposite ways do not make up for each other
    assert apart and apart.error == pytest.approx(0.95)
    with pytest.raises(InputError, match=r"1\.5"):
        calibration([1.5], [1])


def test_exactly_the_audited_questions_change(tmp_path: Path):
    asked = [QuestionKey("c1", category, "What did Mira get?") for category in ("single-hop", "adversarial")]
    asked += [QuestionKey(name, "temporal", "When did Mira move?") for name in ("c1", "c2")]
    audit = tmp_path / "errors.json"
    row = {"error_type": "TEMPORAL_ERROR", "golden_answer": "3 May", "cited_evidence": ["D1:1"]}
    row |= {"sample_id": "c1", "category": 2, "question": "When did Mira move?"}
    audit.write_text(json.dumps([row | {"correct_answer": "4 May", "correct_evidence": ["D1:2"]}]))
    errors = read_corrections(audit)
    changed = {key: found for key in asked if (found := corrected(key, errors))}
    assert changed == {asked[2]: Correction("4 May", ("D1:2",), "TEMPORAL_ERROR")}


@pytest.mark.parametrize("text", ["{", "[1]", '[{"question": "Why?"}]', '{"a": 1}'])
def test_an_audit_of_another_form_is_refused(tmp_path: Path, text: str):
    (tmp_path / "errors.json").write_text(text)
    with pytest.raises(InputError, match="give a list of"):
        read_corrections(tmp_path / "errors.json")
