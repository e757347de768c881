"""Language -> operations, and the two configured files against each other."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import small_world

from memos.cube import EPISODE, Fact
from memos.errors import EmptyMemory, InputError
from memos.infrastructure.host.encoders.embedder import TextTagger
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.phrasebook import language, phrasebook
from memos.interface.reading.requests.intents import SentenceIntent, asked_now, intent, wants
from memos.ops import Add, Asked, Correct, Episode, Forget, Wants

reader = MemReader()
CONFIGS = Path(__file__).parents[3] / "configs"


def texts(turns: list[dict[str, object]]) -> list[str]:
    return [op.text for op in reader.read_turns(turns, "test")]


def of_file(path: Path) -> list[Add | Correct]:
    """The statements that are read in a file."""
    found, _ = reader.read_content(path)
    parts = (one.statements or (one.turn,) if isinstance(one, Episode) else (one,) for one in found)
    return [op for some in parts for op in some if op.facts or op.kind != EPISODE]


@pytest.mark.parametrize(
    "question, now, is_past",
    [
        ("Where did I live before?", "Where do I live?", True),
        ("where did Mira live before she moved to York?", "where does Mira live?", True),
        ("Where did we use to live?", "Where do we live?", True),
        ("What was my old job?", "What is my job?", True),
        ("Where do I live now?", "Where do I live?", False),
        ("我以前住在哪里？", "我住在哪里?", True),
        ("What did Mira paint before the race?", "What did Mira paint before the race?", False),
        ("What did you recommend before?", None, False),
        ("Was I ill on Monday?", "am I ill?", True),
        ("Where did I live in May?", "Where do I live?", True),
        ("who was my boss two years ago", "who is my boss?", True),
        ("Where will I live in May?", None, False),
        ("我去年住在哪里？", "我住在哪里?", True),
    ],
)
def test_a_question_about_what_no_longer_holds(question: str, now: str | None, is_past: bool) -> None:
    assert bool(wants(question, date(2026, 3, 11)).held) == is_past
    assert now is None or asked_now(question, date(2026, 3, 11)) == now


@pytest.mark.parametrize(
    "question, first, last",
    [
        ("Where did I live before?", date.min, date.max),
        ("Where did I live in May?", date(2025, 5, 1), date(2025, 5, 31)),
        ("where did I live last year?", date(2025, 1, 1), date(2025, 12, 31)),
        ("Where did I live before May 2025?", date.min, date(2025, 4, 30)),
        ("Where did I live in spring?", date(2025, 3, 1), date(2025, 5, 31)),
        ("我去年住在哪里？", date(2025, 1, 1), date(2025, 12, 31)),
    ],
)
def test_the_time_in_the_past_that_a_question_is_about(question: str, first: date, last: date) -> None:
    assert wants(question, date(2026, 3, 11)).held == (first, last)


@pytest.mark.parametrize(
    "text, kind, words",
    [
        ("Remember that I live in Oslo", SentenceIntent.REMEMBER, "I live in Oslo"),
        ("Please don't forget that my locker code is 4711!", SentenceIntent.REMEMBER, "My locker code is 4711!"),
        ("Could you remember that I live in Oslo?", SentenceIntent.REMEMBER, "I live in Oslo"),
        ("Could you remember my birthday?", SentenceIntent.ASK, "Could you remember my birthday?"),
        ("Could you please forget my birthday?", SentenceIntent.FORGET, "my birthday"),
        ("Will you forget me?", SentenceIntent.ASK, "Will you forget me?"),
        ("Remove my birthday from your memory.", SentenceIntent.FORGET, "my birthday"),
        ("I forget where I live", SentenceIntent.TALK, "I forget where I live"),
        ("Note: the key is under the mat", SentenceIntent.REMEMBER, "The key is under the mat"),
        ("Actually, I live in Bergen", SentenceIntent.CORRECT, "I live in Bergen"),
        ("That's wrong. I live in Bergen.", SentenceIntent.CORRECT, "I live in Bergen."),
        ("change my home city to Bergen", SentenceIntent.CORRECT, "My home city is now Bergen"),
        ("where do i live", SentenceIntent.ASK, "where do i live"),
        ("Tell me Mira's job.", SentenceIntent.ASK, "Tell me Mira's job."),
        ("Actually, where do I live?", SentenceIntent.ASK, "Actually, where do I live?"),
        ("No, thanks", SentenceIntent.CORRECT, "Thanks"),
        ("Hello there!", SentenceIntent.TALK, "Hello there!"),
        ("Forget it.", SentenceIntent.TALK, "Forget it."),
        ("别忘了我对花生过敏。", SentenceIntent.REMEMBER, "我对花生过敏。"),
        ("不对，我现在住在波尔图", SentenceIntent.CORRECT, "我现在住在波尔图"),
        ("你记得我住在哪里吗", SentenceIntent.ASK, "你记得我住在哪里吗"),
        ("忘记我住在哪里", SentenceIntent.FORGET, "我住在哪里"),
    ],
)
def test_a_sentence_has_an_intent(text: str, kind: SentenceIntent, words: str) -> None:
    assert intent(text, "User") == (kind, words)


@pytest.mark.parametrize(
    "question, wanted",
    [
        ("What did you recommend for my trip?", Wants(side="assistant", request=True)),
        ("Which of the books you told me about is short?", Wants(side="assistant", request=True)),
        ("What were you saying about my knee?", Wants(side="assistant")),
        ("你推荐过什么书？", Wants(side="assistant")),
        ("上次你说什么？", Wants(side="assistant")),
        ("What would you recommend for my trip?", Wants(side="user", request=True)),
        ("Could you show me how to log in?", Wants(side="user", request=True)),
        ("Can you suggest some shoes for me?", Wants(side="user", request=True)),
        ("请你推荐一本书", Wants(side="user", request=True)),
        ("When did I say that I would leave?", Wants(side="user")),
        ("Summarize what you told me.", Wants(overview=True)),
        ("In which order did I bring up my plans?", Wants(side="user", overview=True)),
        ("What did I buy in order to paint the door?", Wants(side="user")),
    ],
)
def test_a_question_wants_replies_where_it_asks_for_one_that_was_given(question: str, wanted: Wants) -> None:
    assert wants(question, date(2026, 3, 11)) == wanted


@pytest.mark.parametrize(
    "told, what, kind, text",
    [
        ("remember", "I live in Oslo", Add, "User: I live in Oslo."),
        ("remember", "my job is baker", Add, "User: my job is baker."),
        ("remember", "I no longer ski, I do golf now", Correct, "User: I no longer ski, I do golf now."),
        ("remember", "我搬到了北京", Correct, "User: 我搬到了北京。"),
        ("correct", "I live in Bergen", Correct, "User: I live in Bergen."),
        ("correct", "my home city to Bergen", Correct, "User: My home city is now Bergen."),
        ("correct", "Mira's first name to Mara", Correct, "User: Mira's first name is now Mara."),
        ("correct", "my sister moved to Bergen", Correct, "User: My sister moved to Bergen."),
    ],
)
def test_what_was_asked_to_be_kept_becomes_a_statement(told: Any, what: str, kind: type, text: str) -> None:
    op = reader.to_statement(Asked(intent=told, what=what))
    assert (type(op), op.text) == (kind, text)


def test_a_statement_carries_its_facts_and_subject() -> None:
    op = reader.to_statement(Asked(intent="remember", what="I live in Oslo"), "Tom")
    assert op.facts == (Fact(subject="Tom", relation="city", object="Oslo", sole=True),)
    assert (op.speaker, op.segment, op.kind) == ("Tom", "Tom", "fact")


@pytest.mark.parametrize(
    "words, subject, relation, obj",
    [
        ("where I live", "Tom", "city", ""),
        ("where Mira lives", "Mira", "city", ""),
        ("which city I live in", "Tom", "city", ""),
        ("I live in Oslo.", "Tom", "city", "Oslo"),
        ("my job.", "Tom", "job", ""),
    ],
)
def test_what_is_to_be_forgotten_is_a_fact_with_blanks(words: str, subject: str, relation: str, obj: str) -> None:
    assert reader.forget(words, "Tom").facts == (Fact(subject=subject, relation=relation, object=obj),)


def test_what_is_no_fact_is_forgotten_by_its_words() -> None:
    assert reader.forget("the zorb", "Tom") == Forget(query="the zorb")


def test_an_empty_request_is_refused() -> None:
    with pytest.raises(InputError, match="the message is empty"):
        MemReader(TextTagger()).read_request("  ")


@pytest.mark.parametrize(
    "question, subjects",
    [
        ("Where do I live?", ("Tom",)),
        ("What is Mira's job?", ("Mira",)),
        ("Who is Anna Berg best friends with?", ("Anna Berg",)),
        ("Who lives in Lisbon?", ()),
        ("Do Mira and Nadia like me?", ("Tom", "Mira", "Nadia")),
        ("What did Nadia say on Monday?", ("Nadia",)),
        ("What is the weather like?", ()),
        ("Forget that I live in Oslo", ("Tom",)),
        ("我住在哪里？", ("Tom",)),
        ("Mira住在哪里？", ("Mira",)),
    ],
)
def test_a_question_names_its_subjects(question: str, subjects: tuple[str, ...]) -> None:
    assert reader.recall(question, "Tom").about == subjects


@pytest.mark.parametrize(
    "text, tag",
    [
        ("hello", "en"),
        ("Olá, tudo bem?", "en"),
        ("1234", "en"),
        ("What does 北京 mean in English?", "en"),
        ("我住在里斯本", "zh"),
        ("我喜欢 Python", "zh"),
        ("東京に住んでいます", "ja"),
        ("나는 서울에 살아요", "ko"),
        ("Где я живу?", "ru"),
        ("أين أعيش؟", "ar"),
    ],
)
def test_a_script_tells_the_language(text: str, tag: str) -> None:
    assert language(text) == tag


@pytest.mark.parametrize(
    "content, kept",
    [
        ("Good morning! Did you sleep well?", []),
        ("Thanks, Tom. That sounds great.", []),
        ("It has been raining in Oslo.", []),
        ("I know, Tom.", []),
        ("I hope you like Porto.", []),
        ("If I live in Oslo, I will ski.", []),
        ("I am tired.", []),
        ("Well, I live in Oslo! What a day.", ["Mira: Well, I live in Oslo!"]),
        ("I saw Dr. Berg on Monday. Ha ha.", ["Mira: I saw Dr. Berg on Monday."]),
        ("Remember that the door sticks.", ["Mira: The door sticks."]),
        ("Nadia lives in Vienna.", ["Nadia lives in Vienna."]),
        ("My colleague Nadia lives in Vienna.", ["Mira: My colleague Nadia lives in Vienna."]),
        ("你好！我住在里斯本。天气不错。", ["Mira: 我住在里斯本。"]),
    ],
)
def test_a_turn_keeps_what_is_worth_keeping(content: str, kept: list[str]) -> None:
    assert texts([{"speaker": "Mira", "content": content}]) == kept


def test_small_talk_of_the_small_world_is_not_kept() -> None:
    remarks = [f"{remark[0].upper()}{remark[1:]}." for remark in small_world.CHATTER]
    assert texts([{"speaker": "Mira", "content": remark} for remark in remarks]) == []


def test_the_models_own_words_are_never_memories() -> None:
    said = "I live in Oslo."
    assert texts([{"role": "assistant", "content": said}, {"role": "system", "content": said}]) == []
    assert texts([{"role": "user", "content": said}]) == ["User: I live in Oslo."]


@pytest.mark.parametrize(
    "content",
    [
        "Please forget that I live in Oslo.",
        "请忘记我住在北京。",
        "Delete my address: I live at 5 Elm Street.",
        "Where do I work? And forget that my locker code is 4711.",
    ],
)
def test_what_is_to_be_forgotten_is_not_learnt_from_being_named(content: str) -> None:
    [kept], unread = reader.read_content([{"role": "user", "content": content}])
    assert isinstance(kept, Episode) and kept.turn.verbatim == content  # as it was said, and nothing of it as a fact
    assert (kept.turn.kind, kept.turn.facts, kept.statements, unread) == (EPISODE, (), (), [])


def test_a_turn_keeps_its_time_and_a_time_without_a_zone_is_utc() -> None:
    [op] = reader.read_turns([{"speaker": "Tom", "content": "I live in Oslo.", "time": "2025-03-01T09:00:00"}], "chat")
    assert (op.said, op.origin, op.segment) == (datetime(2025, 3, 1, 9, tzinfo=timezone.utc), "chat", "Tom")


def test_markdown_keeps_bullets_and_paragraphs_under_their_heading(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text(
        "---\ntitle: x\n---\n# House\n\nThe **key** is under\nthe [mat](http://x). It is rusty. Is it?\n\n"
        "- [ ] Mira lives in Oslo.\n* Water is off on Mondays\n\n```\nI live in Code\n```\n## Me\nI live in Rome now.\n"
    )
    assert [(type(op), op.text, op.segment) for op in of_file(path)] == [
        (Add, "The key is under the mat. It is rusty.", "House"),
        (Add, "Mira lives in Oslo.", "Mira"),
        (Add, "Water is off on Mondays.", "House"),
        (Correct, "I live in Rome now.", "User"),
    ]


def test_text_is_paragraphs_unless_every_line_is_spoken(tmp_path: Path) -> None:
    notes, talk = tmp_path / "notes.txt", tmp_path / "talk.txt"
    notes.write_text("Mira lives\nin Oslo. The door sticks.\n\nMind: the step.")
    talk.write_text("Mira: Hello!\nTom: I live in Oslo.\n")
    assert [op.text for op in of_file(notes)] == ["Mira lives in Oslo.", "The door sticks.", "Mind: the step."]
    assert [op.text for op in of_file(talk)] == ["Tom: I live in Oslo."]


def test_a_json_list_is_read_like_jsonl(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "I live in Oslo."}, {"speaker": "Mira", "content": "I live in Rome."}]
    lines, whole = tmp_path / "a.jsonl", tmp_path / "a.json"
    lines.write_text("\n\n".join(json.dumps(turn) for turn in turns))
    whole.write_text(json.dumps(turns))
    assert [op.text for op in of_file(lines)] == [op.text for op in of_file(whole)]


@pytest.mark.parametrize(
    "name, data, error, message",
    [
        ("gone.md", None, InputError, r"gone\.md: no such file"),
        ("a.docx", b"x", InputError, r"a\.docx: memos reads \.csv, .* or \.txt, not \.docx"),
        ("a.txt", b" \n", EmptyMemory, r"a\.txt is empty"),
        ("a.md", b"one\ntwo \xff", InputError, r"a\.md, line 2: not UTF-8"),
        ("a.jsonl", b'{"role": "user", "content": "x"}\n{oops', InputError, r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"role": "user"}', InputError, r'a\.jsonl, line 1: "content" is missing'),
        ("a.jsonl", b'\n{"content": "x"}', InputError, r'a\.jsonl, line 2: a turn needs a "role"'),
        ("a.jsonl", b'"x"', InputError, r"a\.jsonl, line 1: a turn is a JSON object, not str"),
        ("a.jsonl", b'{"role": "user", "content": "x", "time": "noon"}', InputError, r"'noon' is not ISO 8601"),
        ("a.json", b'{"role": "user"}', InputError, r"a\.json, line 1: a \.json conversation is a list"),
        ("a.json", b"[\n{]", InputError, r"a\.json, line 2: not JSON"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_line(
    tmp_path: Path, name: str, data: bytes | None, error: type[Exception], message: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=message):
        of_file(tmp_path / name)


def test_a_file_that_the_system_does_not_let_one_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "own.txt").symlink_to("/proc/self/mem")  # there, and unreadable even to root
    with pytest.raises(InputError, match=r"own\.txt cannot be read .*; give a file that this user may read"):
        of_file(tmp_path / "own.txt")


def test_probes_ask_for_object_and_subject_with_a_fixed_part_held_out() -> None:
    probes = reader.probes([Fact(subject="Mira", relation="city", object="Oslo")])
    assert len(probes) == 12  # 5 generic and 3 specific asks, 2 who forms, and 2 made of statements
    assert {probe.question: probe.answer for probe in probes if probe.held_out} == {
        "Do you know Mira's home city?": "Oslo",
        "Mira's home city?": "Oslo",
        "Where is Mira's home?": "Oslo",
        "Who lives in Oslo?": "Mira",
    }


def test_nobody_is_asked_who_where_there_is_no_one_answer() -> None:
    shared = [Fact(subject=name, relation="city", object="Oslo") for name in ("Mira", "Tom")]
    assert {probe.answer for probe in reader.probes(shared)} == {"Oslo"}
    user = reader.probes([Fact(subject="User", relation="city", object="Oslo")])
    assert {probe.answer for probe in user} == {"Oslo"}
    assert user[0].question == "What is my home city?"


def conversation() -> tuple[list[Add | Correct], dict[tuple[str, str], str]]:
    """The configured conversation as operations, and the facts in force after it."""
    ops = of_file(CONFIGS / "conversation.jsonl")
    return ops, {(fact.subject, fact.relation): fact.object for op in ops for fact in op.facts}


def test_the_conversation_leaves_a_segment_that_fits_the_small_model() -> None:
    ops, in_force = conversation()
    assert sum(1 for _ in (CONFIGS / "conversation.jsonl").open()) >= 70
    assert Counter(subject for subject, _ in in_force) == {"Mira": 10, "Tom": 10, "Nadia": 5}
    assert len(set(in_force.values())) == len(in_force)
    assert sum(isinstance(op, Correct) for op in ops) == 5
    assert max(Counter(op.segment for op in ops).values()) <= 13  # corrected statements included
    assert not {op.speaker for op in ops} & set(small_world.WORLD_NAMES)
    said = [op.said for op in ops if op.said]
    assert said == sorted(said) and len(said) == len(ops)


def test_each_question_asks_for_a_fact_in_force_in_a_held_out_form() -> None:
    ops, in_force = conversation()
    updated = {(fact.subject, fact.relation) for op in ops if isinstance(op, Correct) for fact in op.facts}
    questions = [json.loads(line) for line in (CONFIGS / "questions.jsonl").open()]
    assert 30 <= len(questions) <= 40
    assert {q["about"] for q in questions} == {"Mira", "Tom", "Nadia"}
    expected: dict[tuple[str, str], tuple[str, str]] = {}
    for (subject, relation), obj in in_force.items():
        kind = "updated" if (subject, relation) in updated else "forward"
        for probe in reader.probes([Fact(subject=subject, relation=relation, object=obj)]):
            if probe.held_out:
                expected[probe.question, probe.answer] = (subject, kind if probe.answer == obj else "reversed")
    for q in questions:
        assert expected[q["question"], q["answer"]] == (q["about"], q["kind"])
    assert len({q["question"] for q in questions}) == len(questions)
    assert Counter(q["kind"] for q in questions) == {"forward": 20, "updated": 10, "reversed": 9}


def test_no_name_or_value_of_the_conversation_is_of_the_little_world() -> None:
    _, in_force = conversation()
    assert not {subject for subject, _ in in_force} & set(small_world.WORLD_NAMES)
    assert {relation for _, relation in in_force} <= set(phrasebook())


@pytest.mark.parametrize(
    ("text", "all_said"),
    [
        ("Mira: I live in Oslo.", True),
        ("Mira lives in Oslo now.", True),
        ("I live in Oslo and I have a cat as a pet.", True),
        ("I live in Oslo. I have a cat as a pet.", True),
        ("I live in Oslo with my two cats.", False),
        ("I live in Oslo. The door sticks.", False),
        ("Hello there.", False),
    ],
)
def test_what_stands_beside_the_facts_of_a_text_is_seen(text: str, all_said: bool) -> None:
    assert MemReader().says_no_more(text) is all_said


@pytest.mark.parametrize(
    "text",
    [
        "my password is hunter2, don't save that",
        "my pin is 1234. please do not store this anywhere",
        "do not note this down: I'm pregnant",
        "dont keep this but i cant stand jonno",
        "don't save that my pin is 4711",
        "off the record, I hate my boss",
        "dont remember that i like jazz",
        "I'm seeing a therapist but don't keep that please",
        "别记这个，我的密码是 8812",
        "我的密码是 8812，不要保存",
    ],
)
def test_words_that_ask_not_to_be_kept(text: str) -> None:
    assert reader.withholds(text)
    said: list[dict[str, object]] = [{"role": "user", "content": text}, {"role": "user", "content": "I like tea."}]
    kept, unread = reader.read_content(said)
    assert [op.turn.verbatim for op in kept if isinstance(op, Episode)] == ["I like tea."] and not unread


@pytest.mark.parametrize(
    "text",
    [
        "I don't remember that I said so",
        "Don't save that file yet",
        "dont store my student id pls, remove it",
        "He told me: don't keep it, sell it",
        "Don't remember my birthday?",
        "Don't forget that I like jazz",
        "别忘记我喜欢爵士",
        "We don't record this meeting, do we?",
    ],
)
def test_words_that_do_not_ask_that(text: str) -> None:
    assert not reader.withholds(text)


def test_a_turn_that_takes_the_one_before_back_leaves_neither() -> None:
    kept, unread = reader.read_content(
        [
            {"role": "user", "content": "I like tea."},
            {"role": "user", "content": "My password is hunter2."},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "Don't save that."},
        ]
    )
    assert [op.turn.verbatim for op in kept if isinstance(op, Episode)] == ["I like tea.", "Noted."] and not unread
