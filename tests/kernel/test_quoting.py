"""Where the packaged model can only guess, a chat quotes what is remembered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import Memory, MemOS
from memos.cube import Fact
from memos.kernel.quoting import MAX_CHARS, NEAREST, NOT_REMEMBERED, SMALL_TALK, UNKNOWN, stands, stutters

WAY_OUT = "--set model.path="
TALK = [
    {"role": "user", "content": "my cat is called Biscuit and she hates the vacuum"},
    {"role": "user", "content": "I live in Oslo."},
    {"role": "user", "name": "Piotr", "content": "the ladder is behind the shed", "time": "2026-03-04T12:00:00Z"},
    {"role": "assistant", "content": "For the lasagne you need two tins of tomatoes."},
]


@pytest.fixture
def memory(tmp_path: Path, ada: str) -> Iterator[Memory]:
    with Memory(vault=tmp_path / "vault") as memory:
        memory.add(TALK, user_id=ada)
        yield memory


def test_what_the_model_reads_it_answers(memory: Memory, ada: str) -> None:
    reply = memory.chat("Where do I live?", user_id=ada)
    assert (reply["text"], WAY_OUT in reply["text"]) == ("Oslo", False)


@pytest.mark.parametrize(
    ("question", "quote", "said"),
    [
        ("what's my cat called?", "You said: “my cat is called Biscuit and she hates the vacuum”", 0),
        ("where is the ladder?", "Piotr said on 4 March 2026: “the ladder is behind the shed”", 2),
        ("what do i need for the lasagne?", "I said: “For the lasagne you need two tins of tomatoes.”", 3),
    ],
)
def test_what_it_cannot_read_is_quoted_with_who_said_it_and_when(
    memory: Memory, ada: str, question: str, quote: str, said: int
) -> None:
    heard: list[str] = []
    reply = memory.within(user_id=ada).chat(question, on_text=heard.append)
    assert reply.text.splitlines()[0] == quote
    assert heard == [reply.text]  # nothing of the model's guess was heard
    assert TALK[said]["content"] in [getattr(cube.payload, "verbatim", "") for cube in reply.admission.cubes]


def test_what_states_the_fact_is_quoted_in_whatever_words(memory: Memory, ada: str) -> None:
    memory.add([{"role": "user", "name": "Mira", "content": "I moved to Lisbon last week."}], user_id=ada)
    reply = memory.chat("Where does Mira live?", user_id=ada)
    assert reply["text"].splitlines()[0] == "Mira said: “I moved to Lisbon last week.”"
    assert memory.chat("Who is Mira's dentist?", user_id=ada)["text"].startswith(f"{NEAREST}\n")


def test_a_question_is_quoted_with_what_was_replied_to_it(memory: Memory, ada: str) -> None:
    names = ("Caro", "Mel")
    said = ("What a lovely family photo! How long have you been married?", "Five years already, time flies.")
    memory.add([{"role": "user", "name": n, "content": text} for n, text in zip(names, said, strict=True)], user_id=ada)
    quotes = [f"{name} said: “{text}”" for name, text in zip(names, said, strict=True)]
    reply = memory.within(user_id=ada).chat("how long has mel been married?")
    assert reply.text.splitlines()[:2] == quotes and len(reply.admission.cubes) >= 2
    memory.delete(reply.admission.cubes[1].id, user_id=ada)
    assert "Five years" not in memory.chat("how long has mel been married?", user_id=ada)["text"]


def test_asked_when_something_was_said_a_quote_has_its_day(memory: Memory, ada: str) -> None:
    memory.add("I like jazz.", user_id=ada)
    quote = memory.chat("when did i say that i like jazz?", user_id=ada)["text"].splitlines()[0]
    assert re.fullmatch(r"You said on \d+ \w+ 20\d\d: “I like jazz.”", quote)


def test_the_way_to_a_model_of_ones_own_is_told_once(memory: Memory, ada: str) -> None:
    texts = [memory.chat("where is the ladder?", user_id=ada)["text"] for _ in range(2)]
    assert [WAY_OUT in text for text in texts] == [True, False]


def test_what_is_not_remembered_is_told(memory: Memory, ada: str) -> None:
    reply = memory.chat("who is my dentist?", user_id=ada)
    assert reply["text"].startswith(f"{NEAREST}\n")
    assert reply["used"] == []


def test_without_memory_the_model_says_what_it_knows(memory: Memory, ada: str) -> None:
    assert "said" not in memory.chat("Who does Balthazar report to?", user_id=ada, via="none")["text"]


def test_an_answer_that_says_the_same_again_and_again_is_none(memory: Memory, ada: str) -> None:
    for via in ("auto", "none"):
        shown = list[str]()
        reply = memory.within(user_id=ada).chat("home", via=via, on_text=shown.append)
        assert shown == [reply.text] and "L L" not in reply.text
    assert memory.within(user_id=ada).ask("home").text == UNKNOWN


@pytest.mark.parametrize(
    "answer, none",
    [
        ("Oslo anydlo anydlo anydlo", True),
        ("Oslo a b a b a b a", True),  # cut within the words that come again
        ("New York New York New York", True),
        ("no no", False),
        ("tea tea tea and coffee", False),
        ("Oslo", False),
        ("", False),
    ],
)
def test_an_answer_that_lost_its_way_is_known_by_its_end(answer: str, none: bool) -> None:
    assert stutters(answer) == none


def test_a_conversation_goes_on_after_a_quote(memory: Memory, ada: str) -> None:
    first = memory.chat("where is the ladder?", user_id=ada, session="monday")["text"]
    assert memory.chat("Where do I live?", user_id=ada, session="monday")["text"] == "Oslo"
    turns = memory.within(user_id=ada).turns("monday")
    assert first in [getattr(turn.payload, "answer", "") for turn in turns]


def test_a_long_text_is_quoted_in_part(memory: Memory, ada: str) -> None:
    memory.add("the recipe for plum jam: " + "plums and sugar, " * 60, user_id=ada)
    line = memory.chat("what is the recipe for plum jam?", user_id=ada)["text"].splitlines()[0]
    assert line.endswith(" …”") and len(line) < MAX_CHARS + 40


def test_an_answer_stands_where_a_fact_was_asked_for_and_read() -> None:
    asks, read = (
        [Fact(subject="User", relation="city", object="")],
        [Fact(subject="User", relation="city", object="Oslo")],
    )
    assert stands("oslo.", asks, read)
    assert stands("Os", asks, read)  # no more tokens were allowed
    assert not stands("", asks, read)
    assert not stands("Oslo", [], read)
    assert not stands("the vacuum", asks, read)
    assert not stands("Bosch", asks, [*read, Fact(subject="User", relation="employer", object="Bosch")])
    assert not stands("unknown", asks, read)


@pytest.mark.parametrize("message", ["hello!", "thanks!", "lol ok", "nope", "how are you?", "who are you?", "not yet"])
def test_small_talk_is_no_question_and_nothing_to_remember(memory: Memory, ada: str, message: str) -> None:
    reply = memory.chat(message, user_id=ada, session="monday")
    assert (reply["text"], reply["remembered"]) == (SMALL_TALK, [])


@pytest.mark.parametrize("told", ["hello, i'm Tom", "my name is Tom", "hi, my name's Tom", "call me Tom", "I am Tom"])
@pytest.mark.parametrize("asked", ["what's my name?", "who am i?", "Do you know my name?"])
def test_who_somebody_is_can_be_asked(tmp_path: Path, ada: str, told: str, asked: str) -> None:
    with Memory(vault=tmp_path / "vault") as memory:
        assert memory.chat(told, user_id=ada)["text"].startswith("Noted: ")
        assert "Tom" in memory.chat(asked, user_id=ada)["text"].splitlines()[0]


def test_a_question_in_other_words_is_answered_by_the_fact_it_asks_for(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path / "vault") as memory:
        for told in ("i live in leeds", "new job at bosch!", "my wife is called Jo"):
            memory.chat(told, user_id=ada)
        for asked, answer in (("where do i work?", "bosch"), ("what's my wife's name?", "Jo")):
            assert answer in memory.chat(asked, user_id=ada)["text"].splitlines()[0]


def test_questions_in_a_row_are_questions_in_one_session(tmp_path: Path, ada: str) -> None:
    """What memos says of its memories in between is no context in which a question means something else."""
    said = ("i hate coriander", "my car is a blue skoda, reg AB12 CDE", "boiler man is coming friday", "i'm Maya")
    asks = {"what food do i hate?": "coriander", "what car do i drive?": "AB12 CDE", "who am i?": "Maya"}
    with Memory(vault=tmp_path / "vault") as memory:
        for told in said:
            memory.chat(told, user_id=ada, session="monday")
        memory.chat("where do you know all that from?", user_id=ada, session="monday")
        for question, answer in asks.items():
            assert answer in memory.chat(question, user_id=ada, session="monday")["text"].splitlines()[0]


def test_chinese_is_quoted_where_it_answers_and_nowhere_else(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path / "vault") as memory:
        for told in ("我叫小明，住在杭州", "我在阿里巴巴上班", "我女朋友叫小红"):
            memory.chat(told, user_id=ada)
        memory.chat("你好", user_id=ada)
        for asked, answer in (("我叫什么名字？", "小明"), ("我在哪里工作？", "阿里巴巴"), ("我女朋友叫什么？", "小红")):
            lines = memory.chat(asked, user_id=ada)["text"].splitlines()
            assert answer in lines[0] and not any(line.startswith("你说过") for line in lines[1:])
        assert memory.chat("我的狗几岁了？", user_id=ada)["text"] == "这个你还没跟我说过。"
        kept = len(memory.get_all(user_id=ada)["results"])
        for asked in ("我能不能吃海鲜", "国庆节我们有啥安排"):
            assert memory.chat(asked, user_id=ada)["text"] == "这个你还没跟我说过。"
        assert len(memory.get_all(user_id=ada)["results"]) == kept


def test_in_a_young_store_chinese_is_found_by_the_words_that_matter(memory: Memory, ada: str) -> None:
    said = {"2026-05-04": "养了只橘猫叫豆包", "2026-05-12": "豆包送给我表姐养了,我老过敏"}
    for day, text in said.items():
        memory.add([{"role": "user", "content": text, "time": f"{day}T09:00:00Z"}], user_id=ada)
        memory.tick(user_id=ada)
    quotes = memory.chat("豆包现在在谁那儿", user_id=ada)["text"].splitlines()
    assert [text for line in quotes for text in said.values() if text in line] == list(reversed(said.values()))


def test_what_was_done_is_undone_also_after_a_question(memory: Memory, ada: str) -> None:
    turns: list[dict[str, str]] = []
    for said in ("forget my cat", "what is my cat called?", "undo that", "what is my cat called?"):
        text = memory.within(user_id=ada).chat(said, turns=turns).text
        turns += [{"role": "user", "content": said}, {"role": "assistant", "content": text}]
    assert turns[3]["content"].startswith(NOT_REMEMBERED) and "Biscuit" in turns[7]["content"]


@pytest.mark.parametrize(
    ("message", "answers"),
    [
        ("where do I live and what does my sister do?", ["Oslo", "You said: “my sister lena is a vet.”"]),
        ("What is my sister's job? Where do I live?", ["You said: “my sister lena is a vet.”", "Oslo"]),
        ("What is my cat called and where do I live?", ["Biscuit", "Oslo"]),
    ],
)
def test_each_of_several_questions_is_answered(memory: Memory, ada: str, message: str, answers: list[str]) -> None:
    memory.chat("my sister lena is a vet", user_id=ada)
    heard: list[str] = []
    reply = memory.within(user_id=ada).chat(message, on_text=heard.append)
    lines = [line for line in reply.text.splitlines() if WAY_OUT not in line]
    assert len(lines) == len(answers) and all(map(str.startswith, lines, answers))
    assert "".join(heard) == reply.text and not reply.remembered


def test_that_nothing_answers_is_said_where_it_is_so_of_all_questions(memory: Memory, ada: str) -> None:
    text = memory.chat("What is my blood type and where do I live?", user_id=ada)["text"]
    assert "Nothing that is remembered" not in text and "Oslo" in text
    text = memory.chat("What is my blood type and what is my shoe size?", user_id=ada)["text"]
    assert text.count("Nothing that is remembered") == 1


def test_two_facts_of_one_sentence_without_capitals_are_both_found(memory: Memory, ada: str) -> None:
    memory.chat("i work at tesco and my dog is called Rex", user_id=ada)
    assert "tesco" in memory.chat("where do i work?", user_id=ada)["text"]
    assert "Rex" in memory.chat("what's my dog called?", user_id=ada)["text"]


def test_what_was_done_beside_a_question_is_heard_with_its_answer(memory: Memory, ada: str) -> None:
    heard: list[str] = []
    message = "Where do I live? Also remember that my boat is called Tom."
    reply = memory.within(user_id=ada).chat(message, on_text=heard.append)
    assert "".join(heard) == reply.text and reply.text.splitlines()[-1] == "Oslo" and "boat" in reply.text


ENGLISH = """
    ? what do you know about me
    i live in bath
    my uncle ken runs a pub in derby, our son max is 9
    ? where is ken's pub
    i reckon we should get a puppy in spring
    ? are we getting a puppy
    i hate coriander, love mushrooms, and my shoe size is 42
    my gp is dr okafor
    ? who is my gp
    switched gp to dr lim at park surgery
    new car, its a fiat 500
    my ex wife linda lives in hull, our daughter beth is 12
"""
CHINESE = """
    我在杭州滨江住 去年从合肥搬过来的
    我家猫叫年糕 是只橘猫 今年4岁
    我奶奶82岁 糖尿病 不能吃甜的
    ? 我家猫叫啥
    我女儿在英国留学
    ? 我女儿在哪
    她叫思思
    我搬到余杭了 房租4800
    我男朋友叫李哲 在阿里写backend
    周五要交季度report
    ? 我家有几只猫
    ? 思思在哪
    我海鲜过敏 不对 是虾过敏
"""


@pytest.mark.parametrize("session", [ENGLISH, CHINESE])
def test_what_is_told_is_kept_whole_whatever_was_said_before_and_what_is_asked_is_not(
    tmp_path: Path, session: str
) -> None:
    with MemOS(vault=tmp_path) as memos:
        messages = [line.strip() for line in session.strip().splitlines()]
        for message in messages:
            memos.chat(message.removeprefix("? "), session="one")
        kept = [cube.text for cube in memos.cubes()]
        for message in messages:
            asked = message.startswith("? ")
            words = message.removeprefix("? ").replace("她叫", "我女儿叫")  # whom it means
            assert any(words in text for text in kept) is not asked, (message, kept)


def test_where_somebody_worked_is_not_where_they_work(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat("quit my job at tesco, start at aldi on monday")
        memos.tick()
        assert memos.chat("where do i work").text.startswith("You said: “quit my job at tesco")  # not "tesco"


def test_what_lies_on_the_days_that_are_asked_of_is_quoted(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat("dentist thursday 4.30, need to pick up the parcel tomorrow")
        memos.chat("going to lisbon 3-10 january, staying at hotel borges")
        for question in ("what have i got planned for january", "what's coming up in january?"):
            assert "lisbon" in memos.chat(question).text
            assert "dentist" not in memos.chat(question).text


def test_the_nearest_is_quoted_as_no_more_than_that(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path) as memory:
        memory.chat("the car's due its mot in march", user_id=ada)
        reply = memory.chat("what did i say about the car", user_id=ada)
        assert reply["text"].startswith(f"{NEAREST}\nYou said: “the car's due its mot in march") and reply["used"] == []
        memory.chat("my sister lena is a vet", user_id=ada)
        both = memory.chat("what does my sister lena do and what do i say about the car?", user_id=ada)["text"]
        assert "lena is a vet" in both and "Nothing that is remembered" not in both and "mot in march" not in both


def test_of_what_answers_alike_the_latest_is_quoted_first_and_a_short_message_whole(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path) as memory:
        for text in (
            "the door code is 4471",
            "door code changed, it's 9920 now",
            "quit my job at tesco, start at aldi",
        ):
            memory.chat(text, user_id=ada)
        memory.tick(user_id=ada)
        assert "9920" in memory.chat("what's the door code", user_id=ada)["text"].splitlines()[0]
        assert "start at aldi" in memory.chat("where do i work", user_id=ada)["text"].splitlines()[0]


@pytest.mark.parametrize("question", ["what was linda's surname again", "where did sean go", "is it open on sundays"])
def test_a_question_without_its_mark_is_not_kept(tmp_path: Path, question: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat("the gym is 30 quid", session="one")
        assert [one.intent for one in memos.chat(question, session="one").operations] == ["recall"]
        assert not any(question.split()[-1] in cube.text for cube in memos.memories())


@pytest.mark.parametrize(
    ("told", "after", "question", "first"),
    [
        ("we offer 485k for a house", "they want 500 so we went up to 495k", "what did we offer for the house", 1),
        ("my mum is in hospital", "she's home now", "where is my mum", 1),
        ("I take ramipril 5 mg every morning", "the ramipril was raised to 10 mg", "how much ramipril do I take?", 1),
        ("My sister Camila is pregnant", "It is a girl and she will be called Alice", "Is Camila pregnant?", 0),
    ],
)  # fmt: skip
def test_what_goes_on_with_a_memory_is_quoted_with_it_and_a_change_first(
    tmp_path: Path, ada: str, told: str, after: str, question: str, first: int
) -> None:
    with Memory(vault=tmp_path) as memory:
        for text in (told, after, "the bins go out on thursdays"):
            memory.chat(text, user_id=ada, run_id="one")
        lines = memory.chat(question, user_id=ada, run_id="one")["text"].splitlines()
        ends = [words.split()[-1] for words in (told, after)]
        assert ends[first] in lines[0] and ends[1 - first] in lines[1]


def test_what_was_told_next_of_something_else_is_not_quoted(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path) as memory:
        for text in (
            "My flight to Lisbon is with Swiss, my brother picks me up",
            "Swimming changed, now it is on tuesday",
        ):
            memory.chat(text, user_id=ada, run_id="one")
        text = memory.chat("Who comes to fetch me when I land in Lisbon?", user_id=ada, run_id="one")["text"]
        assert "my brother" in text.splitlines()[0] and "Swimming" not in text


def test_a_name_alone_answers_no_question(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path) as memory:
        memory.chat("Finn starts kindy on the 2nd of Feb, Tayla has her formal in December", user_id=ada)
        assert memory.chat("when's Finn's dentist appointment?", user_id=ada)["text"].startswith(f"{NEAREST}\n")
        assert memory.chat("when does Finn start kindy?", user_id=ada)["text"].startswith("You said on")


@pytest.mark.parametrize(
    ("told", "order"),
    [
        ("我的猫叫年糕，上个月做了绝育", "忘掉年糕绝育那个事"),
        ("家里的存折我放在大衣柜第二个抽屉里了。", "把存折放哪儿的那条记录删掉吧,不安全。"),
        ("我膝蓋的韌帶去年打籃球受傷,醫生叫我不要再跑步", "請忘記我膝蓋受傷的事,但店裡的事要留著"),
    ],
)
def test_what_is_described_in_chinese_is_forgotten_alone(tmp_path: Path, ada: str, told: str, order: str) -> None:
    with Memory(vault=tmp_path) as memory:
        for text in ("房租我俩平摊，我出2300", told, "店里礼拜一公休"):
            memory.chat(text, user_id=ada, run_id="one")
        memory.chat(order, user_id=ada, run_id="one")
        left = [one["memory"] for one in memory.get_all(user_id=ada)["results"]]
        assert len(left) == 2 and not any(told[:6] in text for text in left)


def test_appointments_are_listed_by_their_days(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path) as memory:
        for text in ("dentist tomorrow at 9", "went to the zoo yesterday", "my cat is called Biscuit"):
            memory.chat(text, user_id=ada)
        reply = memory.chat("list all my appointments", user_id=ada)["text"]
        assert "dentist" in reply and "zoo" not in reply and "Biscuit" not in reply
        assert "Nothing" in memory.chat("what do you know about Paçoca", user_id=ada)["text"]
