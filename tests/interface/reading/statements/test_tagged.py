"""What becomes of the words that a tagger of statements marks: whom they are about, their days, what they end."""

from __future__ import annotations

import re
from datetime import date

import pytest

from memos.cube import Fact
from memos.infrastructure.host.encoders.embedder import STATEMENTS, LabelledSpan, TaggedText, TextTagger
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.statements.tagged import MODES, TaggedStatement, read

WEDNESDAY = date(2026, 3, 11)
reader = MemReader(statement_tagger=TextTagger(STATEMENTS))


class Marking:
    """A tagger that finds what is marked: "<is><who>my son</who> sings</is>"; sure: how sure it is of that."""

    def __init__(self, marked: str, sure: float = 0.9) -> None:
        self.text, self.parts, self.slots = "", list[LabelledSpan](), list[LabelledSpan]()
        open_: list[int] = []
        for piece in re.split(r"(</?\w+>)", marked):
            if piece.startswith("</"):
                span = LabelledSpan(piece[2:-1], open_.pop(), len(self.text), sure)
                (self.parts if span.label in MODES else self.slots).append(span)
            elif piece.startswith("<"):
                open_.append(len(self.text))
            else:
                self.text += piece

    def tag(self, text: str, before: str = "") -> TaggedText:
        return TaggedText(tuple(self.parts), tuple(self.slots), ())


def stated(marked: str, sure: float = 0.9) -> list[TaggedStatement]:
    tagger = Marking(marked, sure)
    return read(tagger.text, "Mira", WEDNESDAY, tagger)


@pytest.mark.parametrize(
    "marked, subject",
    [
        ("<is>sings in a choir</is>", "Mira"),
        ("<is><who>i</who> sing</is>", "Mira"),
        ("<is><who>my little brother</who> sings</is>", "Mira's brother"),
        ("<is><who>Our Dad</who> sings</is>", "Mira's dad"),
        ("<is><who>mum</who> sings</is>", "Mira's mum"),
        ("<is><who>my cousin Nuno</who> sings</is>", "Nuno"),
        ("<is><who>uncle col</who> sings</is>", "col"),
        ("<is><who>my sister in law</who> sings</is>", "Mira's sister in law"),
        ("<is><who>my landlady</who> sings</is>", "Mira's landlady"),
        ("<is><who>Nadia</who> sings</is>", "Nadia"),
        ("<is>my dentist pulled the wrong tooth</is>", "Mira's dentist"),
        ("<is>our new organist's wife sings</is>", "Mira's organist"),
        ("<is>my dentist appointment is in May</is>", "Mira"),
        ("<is>my dentist is a man called Noor</is>", "Mira"),
        ("<is><who>my dog</who> sings</is>", "Mira"),
        ("<is>my twin lives in Malmö</is>", "Mira's twin"),
        ("<is><who>my wife</who> and i sing</is>", "Mira"),
        ("<is>i moved <who>my mother</who>'s things</is>", "Mira"),
        ("<is><who>Moira from the choir</who> sings</is>", "Moira"),
        ("<is><who>the van</who> broke down</is>", "Mira"),
        ("<is><who>my grandson Matteo</who> sings</is>", "Matteo"),
        ("<is><who>my eldest, Dov,</who> sings</is>", "Dov"),
        ("<is><who>my sons both</who> sing</is>", "Mira's sons"),
        ("<is><who>the twins</who> sing</is>", "Mira's twins"),
        ("<is><who>kid</who> sings</is>", "Mira's kid"),
        ("<is><who>Father Tom</who> sings</is>", "Father Tom"),
        ("<is><who>Our Siân</who> sings</is>", "Siân"),
        ("<is><who>our boss</who> sings</is>", "Mira's boss"),
        ("<is><who>my mums</who> singing</is>", "Mira's mum"),
        ("<is><who>my brother and his wife</who> sing</is>", "Mira's brother"),
        ("<is><who>my social worker</who> sings</is>", "Mira's social worker"),
        ("<is><who>our neighbour's goat</who> sings</is>", "Mira"),
        ("<is><who>deffo</who> not singing</is>", "Mira"),
        ("<is><who>我跟男朋友</who>在唱歌</is>", "Mira"),
        ("<is><who>我妈</who>在唱歌</is>", "Mira的妈"),
        ("<is>我老公在唱歌</is>", "Mira的老公"),
    ],
)
def test_whom_a_statement_is_about(marked: str, subject: str) -> None:
    assert [one.subject for one in stated(marked)] == [subject]


def test_she_is_whom_the_statement_before_was_about() -> None:
    found = stated("<is><who>my niece</who> moved out</is>, <is><who>she</who> sings now</is>")
    assert [one.subject for one in found] == ["Mira's niece", "Mira's niece"]
    found = stated("<is><who>granny</who> is 90</is>, <is>shes still singing</is>")
    assert [one.subject for one in found] == ["Mira's granny", "Mira's granny"]


@pytest.mark.parametrize(
    "marked, when",
    [
        ("<is>passed the exam on friday</is>", "2026-03-06"),
        ("<is>the exam is on friday</is>", "2026-03-13"),
        ("<will>taking the exam on friday</will>", "2026-03-13"),
        ("<now>moved to Lyon last week</now>", "2026-03-02/2026-03-08"),
        ("<is>off work til monday</is>", "2026-03-16"),
        ("<is>i swim every friday</is>", ""),
        ("<is>a nurse since 2014</is>", ""),
        ("<is>i graduate on the 1st of march</is>", "2027-03-01"),
        ("<is>i swim a lot</is>", ""),
        ("<is>the exam got moved to friday</is>", "2026-03-13"),
        ("<is>moved to Leeds on friday</is>", "2026-03-06"),
        ("<is>the exam is scheduled for 2 March</is>", "2027-03-02"),
        ("<will>were moving to Leeds in june</will>", "2026-06-01/2026-06-30"),
        ("<is>the builders came on weds</is>", "2026-03-04"),
        ("<is>she is here for the whole of may</is>", "2026-05-01/2026-05-31"),
        ("<is>sang for thirty-one years before i retired</is>", ""),
        ("<is>i sell christmas trees</is>", ""),
        ("<is>我在卖圣诞帽</is>", ""),
        ("<is>我报了11月15号的考试</is>", "2026-11-15"),
        ("<is>我爷爷今年八十五了</is>", ""),
    ],
)
def test_a_day_lies_behind_what_has_happened_and_ahead_of_all_else(marked: str, when: str) -> None:
    assert [one.when for one in stated(marked)] == [when]


def test_what_it_is_about_becomes_facts() -> None:
    [one] = stated("<now><who>my son</who> moved to <city>the Hague</city></now>")
    assert one.facts == (Fact(subject="Mira's son", relation="city", object="Hague", mode="now", sole=True),)
    [one] = stated("<is>the <key>Garage code</key> is <value>7719</value></is>")
    assert one.facts == (
        Fact(subject="Mira", relation="garage code", object="7719"),
    )  # nothing is replaced unless that is said
    assert stated("<is>went to <visited>Rome</visited></is>")[0].facts[0].relation == "visited"


def test_chinese_is_read_by_whole_clauses() -> None:
    found = stated("哈哈，<is>我哥考</is>上研究生了，全村放鞭炮")
    assert [one.words for one in found] == ["我哥考上研究生了"]


def test_what_the_tagger_is_not_sure_of_says_nothing() -> None:
    assert stated("<is>sings</is>", sure=0.3) == []


def test_what_is_cut_off_goes_on_to_the_end_of_the_clause_and_a_greeting_is_none() -> None:
    found = stated("<is>hey</is>, <is>they're</is> tearing down our street, bastards")
    assert [one.words for one in found] == ["they're tearing down our street"]


# -- with the weights of the package --------------------------------------------------------------------


def test_people_are_read_as_they_type() -> None:
    [one] = reader.stated("omg finally moved to southampton last week!!", "Tom", date(2026, 3, 11))
    assert (one.subject, one.mode, one.when) == ("Tom", "now", "2026-03-02/2026-03-08")
    assert one.words.startswith("moved to southampton") or one.words.startswith("finally moved")
    assert [(f.relation, f.object) for f in one.facts] == [("city", "southampton")]


@pytest.mark.parametrize("text", ["just moved to hull", "Just moved to Hull!", "hey, I just moved to Hull"])
def test_what_somebody_just_did_is_read_as_what_they_did(text: str) -> None:
    [one] = reader.stated(text, "Tom", WEDNESDAY)
    assert (one.subject, one.mode) == ("Tom", "now") and one.words in text
    assert [(f.relation, f.object.lower()) for f in one.facts] == [("city", "hull")]
    assert not any(fact.subject == "Just" for fact in reader.statement(text).facts)


@pytest.mark.parametrize(
    "text",
    [
        "lol no way",
        "just kidding",
        "that was just wicked",
        "whats the capital of peru",
        "",
        "   ",
        "\ufffd\u200b",
        "ꙮ" * 300,
    ],
)
def test_small_talk_and_odd_scripts_state_nothing(text: str) -> None:
    assert reader.stated(text, "Tom", WEDNESDAY) == []


def test_a_later_message_ends_an_earlier_one_of_the_same_matter_alone() -> None:
    assert reader.ends("i live in leeds", "moved to southampton last week!", 0.5, "Tom", WEDNESDAY)
    assert not reader.ends("i live in leeds", "moved to southampton last week!", 0.1, "Tom", WEDNESDAY)
    assert not reader.ends("i live in leeds", "my brother moved to oslo", 0.5, "Tom", WEDNESDAY)
    assert not reader.ends("i live in leeds", "lol no way", 0.5, "Tom", WEDNESDAY)
    unlike = (
        "cord wood from Lafleur, $340 a cord, phone 802 555 0147",
        "bandsaw needs a new blade, 105 inch, half inch 3 tpi",
    )
    assert reader.ends(*unlike, 0.29, "Tom", WEDNESDAY, shared=0.5)
    assert not reader.ends(*unlike, 0.29, "Tom", WEDNESDAY, shared=0.0)
    once = ("wife is Jeanne. married 46 years in june", "eye dr feb 27 at 1:15 over in Keene, Jeanne drives")
    assert reader.ends(*once, 0.44, "Tom", WEDNESDAY, shared=0.5)
    assert not reader.ends(*once, 0.44, "Tom", WEDNESDAY, shared=0.15)  # one word of many


def test_chinese_of_another_matter_ends_nothing_however_alike_it_is() -> None:
    told = "奶奶出院啦,接回家了"
    assert not reader.ends("大众卖掉了,提了台比亚迪", told, 0.5, "Tom", WEDNESDAY, shared=0.0)
    assert reader.ends("我每天喝两杯咖啡", "我戒咖啡了", 0.82, "Tom", WEDNESDAY, shared=0.3)


@pytest.mark.parametrize(
    ("text", "city"),
    [
        ("got a part time job at the bubble tea place on oxford rd", ""),
        ("hired a van for the move from arnold clark", ""),
        ("moved from leeds to york last week", "york"),
    ],
)
def test_a_street_and_where_something_comes_from_is_no_home(text: str, city: str) -> None:
    facts = [fact for one in reader.stated(text, "Tom", WEDNESDAY) for fact in one.facts if fact.relation == "city"]
    assert [fact.object for fact in facts] == ([city] if city else [])


def test_without_a_tagger_the_call_is_refused() -> None:
    with pytest.raises(TypeError, match="tagger"):
        MemReader().stated("hello", "Tom", WEDNESDAY)
