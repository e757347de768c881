"""What is answered without a language model: small conversations, one for each kind of question."""

from __future__ import annotations

import pytest

from memos.bench.qa.extractive import Extractive
from memos.bench.qa.records import UNKNOWN, Answer, Shown, Task
from memos.config import EmbedderConfig
from memos.infrastructure.host.encoders.embedder import Embedder

SAID = "2024-06-14T10:00:00+00:00"  # a Friday
TALK = (
    ("Nora", "I adopted a parrot named Biscuit last week, and he never stops talking."),
    ("Nora", "We moved to Lisbon from Gothenburg three years ago."),
    ("Nora", "I have been learning the cello for two years."),
    ("Nora", "I swim in the lake every morning because it clears my head."),
    ("Nora", "I have visited Rome and Madrid."),
    ("Tarek", "Yesterday I sold my old motorbike to my cousin Samir."),
    ("Tarek", "My bakery sells rye bread, and I have four ovens."),
    ("Tarek", "I am not a fan of horror films."),
    ("Tarek", "How is the parrot doing?"),
)


@pytest.fixture(scope="module")
def extractive() -> Extractive:
    return Extractive(Embedder(EmbedderConfig()))


def answer(extractive: Extractive, question: str, talk: tuple[tuple[str, str], ...] = TALK) -> Answer:
    shown = tuple(Shown(text=f"{who}: {words}", words=words, speaker=who, said=SAID) for who, words in talk)
    [found] = extractive.answer([Task(id="invented/0", system="memos", question=question, shown=shown)])
    return found


@pytest.mark.parametrize(
    "question, words",
    [
        ("When did Nora adopt a parrot?", "The week before 14 June 2024"),
        ("When did Tarek sell his motorbike?", "13 June 2024"),
        ("When did Nora move to Lisbon?", "2021"),
        ("How long has Nora been learning the cello?", "two years"),
        ("How often does Nora swim in the lake?", "every morning"),
        ("How many ovens does Tarek have?", "four"),
        ("Who bought the motorbike of Tarek?", "Samir"),
        ("Where did Nora move from?", "Gothenburg"),
        ("Why does Nora swim in the lake?", "clears my head"),
        ("Which cities has Nora visited?", "Rome and Madrid"),
        ("What does the bakery of Tarek sell?", "rye bread"),
        ("What is the name of Nora's parrot?", "Biscuit"),
        ("Is Tarek a fan of horror films?", "No"),
    ],
)
def test_the_answer_holds_the_words_that_were_said(extractive: Extractive, question: str, words: str) -> None:
    assert words in answer(extractive, question).text


@pytest.mark.parametrize(
    "question",
    [
        "What did Tarek name his parrot?",
        "When did Nora sell her motorbike?",
        "How many ovens does Nora have?",
        "What instrument is Tarek learning?",
    ],
)
def test_what_was_said_of_somebody_else_is_no_answer(extractive: Extractive, question: str) -> None:
    assert answer(extractive, question).text == UNKNOWN


def test_where_nothing_is_shown_there_is_no_answer_and_no_confidence(extractive: Extractive) -> None:
    found = answer(extractive, "Where does Nora live?", ())
    assert (found.text, found.confidence, found.prompt_tokens, found.calls) == (UNKNOWN, 0.0, 0, 0)


def test_an_answer_tells_what_it_was_made_of(extractive: Extractive) -> None:
    first, second = answer(extractive, "Where does Nora live?"), answer(extractive, "Where does Nora live?", TALK[:2])
    assert first.prompt != second.prompt
    assert first.prompt_tokens > second.prompt_tokens > 0
    assert first.confidence is not None and 0 <= first.confidence <= 1
    assert first.calls == 0 and first.ttft_ms > 0


def test_a_user_of_a_chat_is_who_asks(extractive: Extractive) -> None:
    talk = (("User", "My sprint ends on 29 March 2024."), ("Assistant", "Here is a plan for your sprint."))
    assert answer(extractive, "When does my sprint end?", talk).text == "29 March 2024"


def test_chinese_is_answered_from_what_is_shown(extractive: Extractive) -> None:
    talk = (("小明", "我昨天去了北京。天气很好。"), ("小红", "我喜欢猫。"))
    assert answer(extractive, "小明什么时候去了北京？", talk).text == "13 June 2024"
    assert answer(extractive, "小红喜欢什么？", talk).text


def test_a_sentence_without_end_and_one_without_words_do_no_harm(extractive: Extractive) -> None:
    talk = (("Nora", "word " * 2_000), ("Nora", "…!"), ("Nora", ""))
    assert answer(extractive, "What does Nora like?", talk).text
