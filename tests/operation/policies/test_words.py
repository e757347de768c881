"""Terms of English, Chinese and mixed text."""

from __future__ import annotations

import pytest

from memos.operation.policies.policy import asks, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The cats were RUNNING", ["cat", "run"]),
        ("Café, ｃａｆé, CAFE\u0301", ["café"] * 3),
        ("what is it?", []),
        ("room 101_b", ["room", "101", "b"]),
        ("", []),
    ],
)
def test_words_are_stemmed_and_function_words_left_out(text: str, found: list[str]) -> None:
    assert terms(text) == found


def test_a_chinese_word_is_found_within_a_sentence() -> None:
    said = terms("用户每周五购买拿铁 in Oslo")
    assert set(terms("拿铁", query=True)) <= set(said)
    assert set(terms("铁", query=True)) <= set(said)
    assert "oslo" in said


def test_a_query_in_chinese_asks_for_pairs_alone() -> None:
    assert terms("购买拿铁", query=True) == ["购买", "买拿", "拿铁"]
    assert not set(terms("铁拿", query=True)) & set(terms("拿铁"))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("我现在房租多少钱", ["房租", "钱"]),
        ("豆包现在在谁那儿", ["豆包"]),
        ("我开什么车", ["开", "车"]),
        ("我的 wifi 是什么", ["wifi"]),
        ("我对什么过敏", ["过敏"]),
        ("我在成都住哪里", ["成都", "都住"]),
        ("我太太的地址是什么", ["太太", "地址"]),
        ("我有没有说过健身卡什么时候到期", ["健身", "身卡", "期"]),
        ("我每个月房租多少", ["每", "房租"]),
        ("我一开始打算包多少", ["打算", "算包"]),
        ("那本小说和说明书", ["本小", "小说", "说明", "明书"]),
        ("彼の会社", ["彼の", "の会", "会社"]),
    ],
)
def test_a_query_in_chinese_is_cut_at_what_carries_grammar(asked: str, found: list[str]) -> None:
    assert terms(asked, query=True) == found
    assert set(found) <= set(terms(asked))  # of a text all is a term


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("Did you?", True),
        ("你好吗？", True),
        ("Look! Did you? [a photo of a dog]", True),
        ("I did. Why? Because.", False),
    ],
)
def test_a_question_is_known_by_its_end(text: str, does: bool) -> None:
    assert asks(text) == does
