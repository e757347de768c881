"""What is found in a text, what is not taken for an identifier, and which patterns of one's own are refused."""

from __future__ import annotations

import time

import pytest

from memos.bench.developer.redaction import bench_redaction, sentences
from memos.config import CustomPattern, RedactionConfig
from memos.errors import ConfigError, InputError
from memos.infrastructure.guard.redaction import Redactor

ALL = RedactionConfig(phone="label", email="label", card="label", iban="label", national_id="label")


def found(text: str, **config: object) -> list[tuple[str, str]]:
    redactor = Redactor(ALL.model_copy(update=config))
    return [(one.kind, text[one.start : one.end]) for one in redactor.find(text)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("电话13800138000。", [("phone", "13800138000")]),
        ("电话１３８００１３８０００。", [("phone", "１３８００１３８０００")]),
        ("Mail ada@example.org, now.", [("email", "ada@example.org")]),
        ("邮箱ada@example.org谢谢", [("email", "ada@example.org")]),
        ("IBAN DE89 3704 0044 0532 0130 00 it is", [("iban", "DE89 3704 0044 0532 0130 00")]),
        ("卡号4111111111111111。", [("card", "4111111111111111")]),
        ("身份证11010519491231002X号", [("national_id", "11010519491231002X")]),
        ("SSN: 536-90-4399", [("national_id", "536-90-4399")]),
        ("4111111111111112", []),  # Luhn's check fails
        ("DE88370400440532013000", []),
        ("110105194912310021", []),
        ("订单号13800138000", []),
        ("on 2024-05-13 at 14:30", []),
        ("git@example.com:team/repo.git", []),
    ],
)
def test_an_identifier_is_found_at_its_place(text: str, told: list[tuple[str, str]]) -> None:
    assert found(text) == told


def test_of_the_labelled_sentences_nearly_all_are_right() -> None:
    report = bench_redaction(lambda *_: None)
    rows = {row["identifiers of"]: row for row in report["rows"]}
    assert report["sentences"] >= 300 and report["without_identifiers"] >= 100
    assert rows["all"]["precision"] >= 0.97 and rows["all"]["recall"] >= 0.99
    for language in ("en, held out", "zh, held out"):
        assert rows[language]["precision"] >= 0.9 and rows[language]["recall"] >= 0.95
    assert {one.kind for s in sentences() for one in s.identifiers} == {"phone", "email", "card", "iban", "national_id"}


def test_national_ids_of_other_countries_are_found_where_they_are_configured() -> None:
    text = "My NHS number is 943 476 5919, they said."
    assert found(text, phone="off") == []
    assert found(text, phone="off", national_ids=("gb.nhs",)) == [("national_id", "943 476 5919")]


def test_a_pattern_of_ones_own_is_a_kind() -> None:
    redactor = Redactor(RedactionConfig(custom={"staff": CustomPattern(pattern=r"EMP-\d{4}", do="before_storing")}))
    assert redactor.mask("EMP-1234 and EMP-77", redactor.hides("before_storing")) == "[staff] and EMP-77"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"custom": {"a": CustomPattern(pattern="(")}}, r"custom\.a\.pattern is no regular expression"),
        ({"custom": {"a": CustomPattern(pattern="x*")}}, "matches where there is nothing"),
        ({"custom": {"a": CustomPattern(pattern=r"(?:a+a+)+b")}}, "takes longer than"),
        ({"custom": {"phone": CustomPattern(pattern="x")}}, "the name is taken"),
        ({"phone": "label", "regions": ("XX",)}, "'XX' is no country"),
        ({"national_id": "label", "national_ids": ("cn.nothing",)}, "has no 'cn.nothing'"),
        ({"national_id": "label", "national_ids": ("os.path",)}, "has no 'os.path'"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_loaded(config: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Redactor(RedactionConfig.model_validate(config))


def test_a_pattern_that_takes_too_long_over_a_text_refuses_the_text_in_time() -> None:
    redactor = Redactor(RedactionConfig(custom={"slow": CustomPattern(pattern=r"(?:x+x+)+y")}))
    began = time.perf_counter()
    with pytest.raises(InputError, match=r"custom\.slow\.pattern takes longer than 50 ms over a text of 5000"):
        redactor.find("x" * 5000)
    assert time.perf_counter() - began < 2
