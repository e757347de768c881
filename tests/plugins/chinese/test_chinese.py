"""What a Chinese sentence states, and how it holds."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter

import pytest

from memos import Memory
from memos.cube import Fact
from memos.interface.reading import phrasebook
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.requests import references
from memos.interface.reading.requests.intents import is_question
from memos.interface.reading.statements.statements import read
from memos.plugins.chinese import CHINESE


def facts(sentence: str) -> list[tuple[str, str, str, str]]:
    return [(f.subject, f.relation, f.object, f.mode) for f in read(sentence, "User").facts]


@pytest.mark.parametrize(
    ("question", "subject", "relation"),
    [
        ("我住在哪里？", "User", "city"),
        ("我现在住在哪儿?", "User", "city"),
        ("我叫什么名字？", "User", "name"),
        ("你知道我是谁吗", "User", "name"),
        ("我女朋友叫什么？", "User", "partner"),
        ("我妈妈住在哪里？", "User的妈妈", "city"),
        ("谁是我的老板？", "User", "boss"),
        ("我的密码是多少？", "User", "密码"),
    ],
)
def test_a_question_asks_for_what_its_answer_would_state(question: str, subject: str, relation: str) -> None:
    assert MemReader().recall(question).asks == (Fact(subject=subject, relation=relation, object=""),)


@pytest.mark.parametrize("question", ["今天天气怎么样？", "你好吗？", "帮我写一首诗"])
def test_a_question_about_nobody_asks_for_no_fact(question: str) -> None:
    assert MemReader().recall(question).asks == ()


@pytest.mark.parametrize(
    "sentence, fact",
    [
        ("我住在北京。", ("User", "city", "北京", "is")),
        ("我叫王小明。", ("User", "name", "王小明", "is")),
        ("小明搬到苏州了。", ("小明", "city", "苏州", "now")),
        ("我哥哥搬到沈阳了。", ("User的哥哥", "city", "沈阳", "now")),
        ("Mira搬到上海了。", ("Mira", "city", "上海", "now")),
        ("我换工作了，现在在阿里。", ("User", "employer", "阿里", "now")),
        ("我已经从腾讯离职了。", ("User", "employer", "腾讯", "ended")),
        ("我辞职了。", ("User", "employer", "", "ended")),
        ("我是护士。", ("User", "job", "护士", "is")),
        ("我不当护士了。", ("User", "job", "护士", "ended")),
        ("我最喜欢的颜色是蓝色。", ("User", "colour", "蓝色", "is")),
        ("我现在改喝绿茶了。", ("User", "drink", "绿茶", "now")),
        ("我不再喝咖啡了。", ("User", "drink", "咖啡", "ended")),
        ("我把酒戒了。", ("User", "", "酒", "ended")),
        ("我还养了一只狗。", ("User", "pet", "狗", "also")),
        ("我没有猫了。", ("User", "pet", "猫", "ended")),
        ("我对花生不过敏了。", ("User", "allergy", "花生", "ended")),
        ("我妹妹叫小红。", ("User", "sister", "小红", "is")),
        ("我的储物柜密码改成9024了。", ("User", "code", "9024", "now")),
        ("我以前住在上海。", ("User", "city", "上海", "was")),
        ("我在上海住过五年。", ("User", "city", "上海", "was")),
        ("我打算搬到深圳。", ("User", "city", "深圳", "will")),
        ("李强现在是我的经理。", ("User", "boss", "李强", "now")),
        ("我每天六点起床。", ("User", "wake", "六点", "is")),
    ],
)
def test_a_fact_is_read_with_how_it_holds(sentence: str, fact: tuple[str, str, str, str]) -> None:
    assert facts(sentence) == [fact]


@pytest.mark.parametrize(
    "sentence",
    [
        "我可能会搬到广州。",
        "如果涨工资，我就搬到上海。",
        "我住在上海吗？",
        "小明说他搬到上海了。",
        "她搬到上海了。",
        "我不想住在上海。",
        "我今天没打网球。",
        "我晚上不喝咖啡。",
        "我差点戒了咖啡。",
        "我的前妻是小梅。",
        "我搬到二楼了。",
        "我周五在家工作。",
        "我们公司搬到深圳了。",
    ],
)
def test_doubt_hearsay_and_what_is_no_end_state_nothing(sentence: str) -> None:
    assert facts(sentence) == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("我爱吃啥", True),
        ("我住几楼", True),
        ("我养的猫多大了", True),
        ("我喝不喝咖啡", True),
        ("我妈住院没", True),
        ("奶奶出院没有", True),
        ("我现在单身不", True),
        ("我有几个朋友在北京", False),
        ("几个月前搬到上海", False),
        ("这几天一直加班", False),
        ("昨天啥也没干", False),
        ("我什么都吃", False),
        ("我没什么安排", False),
        ("我还没结婚", False),
        ("谁都没告诉", False),
        ("前几天我搬家了", False),
        ("我在北京住了几天", False),
        ("我认识很多大学同学", False),
        ("我一分钱都没有", False),
        ("我有三只猫，狗还没有", False),
    ],
)
def test_a_question_without_a_mark_is_known_by_what_makes_it_one(text: str, asked: bool) -> None:
    assert is_question(text) == asked


def test_a_list_is_several_facts() -> None:
    assert [f.object for f in read("我喜欢苹果、梨和葡萄。", "User").facts] == ["苹果", "梨", "葡萄"]


def test_without_the_plug_in_a_sentence_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "zh" in phrasebook.LANGUAGES.names()
    monkeypatch.setattr(phrasebook, "_installed", dict)
    assert not read("我住在北京海淀。", "User").facts


def test_the_people_and_things_that_a_message_names_are_found() -> None:
    assert references.names_in("王芳和小明住在上海。") == ["王芳", "小明"]
    assert references.things_in("我的钥匙在桌上") == ["我的钥匙"]
    known = references.known([{"role": "user", "content": "王芳喜欢喝茶。"}])
    assert references.resolved("她住在哪里", known) == "王芳住在哪里"


def test_without_the_plug_in_a_message_is_read_as_an_english_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrasebook, "_installed", dict)
    assert references.names_in("王芳认识 Tom。") == ["Tom"]
    assert is_question("王芳住在哪里？") and not is_question("王芳住在上海。")


def test_what_memos_says_is_there_in_chinese_with_the_same_gaps() -> None:
    assert CHINESE.messages
    (replies, traditional), said = CHINESE.messages.replies, list[str]()
    for path in Path("memos/kernel").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("say", ".tell")):
                said += [one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)]
    sentences = [text for text in said if isinstance(text, str) and text[0].isupper()]
    assert len(sentences) > 15
    assert [text for text in sentences if text not in replies] == []
    assert (
        set(traditional) == set(replies) and "什麼" in traditional[next(e for e, z in replies.items() if "什么" in z)]
    )
    for english, chinese in (*replies.items(), *traditional.items()):
        gaps, filled = ({gap for _, gap, _, _ in Formatter().parse(text) if gap} for text in (english, chinese))
        assert gaps == filled, english


def test_a_chat_is_answered_in_the_language_of_the_message(tmp_path: Path, ada: str) -> None:
    def said(*messages: str) -> list[str]:
        with Memory(vault=tmp_path / "vault") as memory:
            return [memory.chat(text, user_id=ada, session="monday")["text"] for text in messages]

    assert said("我住在杭州", "我妈妈对青霉素过敏") == ["记下了：我住在杭州。", "记下了：我妈妈对青霉素过敏。"]
    assert said("你记得多少条", "How many memories have you got?") == ["2 条记忆。", "2 memories."]
    where, other = said("我妈妈对什么过敏", "where do I live?")
    assert where.startswith("你说过：“我妈妈对青霉素过敏。”") and not other.startswith("你")
    forgotten, undone, answered = said("忘掉我住在哪里", "撤销", "1")
    assert forgotten.startswith("已删除：") and undone.startswith("已撤销，")
    assert answered.startswith("可以告诉我")  # a number has no language of its own
    noted, asked = said("我對花生過敏", "我住哪")  # characters of the message before it, where its own tell nothing
    assert noted == "記下了：我對花生過敏。" and asked.startswith("你說過：“我住在杭州。”\n（我只會引用")


def test_a_question_is_looked_up_with_the_words_that_others_use() -> None:
    assert CHINESE.messages
    assert CHINESE.messages.other_words("我现在房租多少") == ["月租", "租金", "涨租", "住的地方"]
    assert "醫生" in CHINESE.messages.other_words("大夫說什麼")  # in its characters
    assert CHINESE.messages.other_words("你好") == []


def test_what_was_told_in_other_words_is_quoted(tmp_path: Path, ada: str) -> None:
    with Memory(vault=tmp_path / "vault") as memory:
        for told in ("租的房子在南山桃园，月租 4800", "新 leader 定了，是 Rachel", "我妈血压有点高"):
            memory.chat(told, user_id=ada)
        for asked, answer in (("我现在房租多少", "4800"), ("现在谁是我老大", "Rachel"), ("我妈吃的什么降压药", "血压")):
            assert answer in memory.chat(asked, user_id=ada)["text"].splitlines()[0]
