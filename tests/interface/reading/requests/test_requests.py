"""What a message asks for, with its arguments: English and Chinese, by the tagger and what resolves its words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from memos.bench.developer.reader import Outcome, cases, figures
from memos.infrastructure.host.encoders.embedder import STATEMENTS, LabelledSpan, TaggedText, TextTagger
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.requests import picks, references
from memos.interface.reading.times import times
from memos.ops import Asked

reader = MemReader(TextTagger())
WEDNESDAY = date(2026, 3, 11)


def asked(text: str, *turns: str) -> list[tuple[str, dict[str, str | int]]]:
    said = [{"role": "user", "content": turn} for turn in turns]
    return [
        (one.intent, one.model_dump(exclude_defaults=True, by_alias=True))
        for one in reader.read_request(text, said, WEDNESDAY)
    ]


@pytest.mark.parametrize(
    "text, intent, arguments",
    [
        ("Would you mind erasing my old address?", "forget", {"what": "my old address", "who": "user"}),
        ("Give Lena read access to my shopping list.", "share", {"what": "my shopping list", "with": "Lena"}),
        (
            "Let Omar comment on the proposal until Friday",
            "share",
            {"what": "the proposal", "with": "Omar", "relation": "annotator", "until": "2026-03-13"},
        ),
        ("Hide my diary from Paul", "unshare", {"what": "my diary", "with": "Paul"}),
        ("Pin the guide in the KV cache", "promote", {"what": "the guide", "to": "activation"}),
        ("Bake the style guide into your weights", "promote", {"what": "the style guide", "to": "parametric"}),
        ("Evict the menu from the cache", "demote", {"what": "the menu"}),
        ("please don't let anyone modify the seating chart", "freeze", {"what": "the seating chart"}),
        ("Make the safety rules editable again", "thaw", {"what": "the safety rules"}),
        ("Revert the seating chart to version three", "rollback", {"what": "the seating chart", "to": 3}),
        ("roll back the menu to yesterday", "rollback", {"what": "the menu", "to": "2026-03-10"}),
        ("List every memory that mentions Oslo", "about", {"ask": "list", "what": "Oslo"}),
        ("pls remove my salary", "forget", {"what": "my salary", "who": "user"}),
        (
            "what's new since february?",
            "recall",
            {"what": "what's new since february?", "when": "2026-02-01/2026-03-11"},
        ),
        ("Where did I park?", "recall", {"what": "Where did I park?", "who": "user"}),
        ("Sorry, I meant 14 Elm Street, not 40", "correct", {"what": "14 Elm Street, not 40"}),
        ("Note to self: the boiler is old", "remember", {"what": "the boiler is old"}),
        ("you're a lifesaver", "talk", {}),
        ("把我的旧邮箱删了吧", "forget", {"what": "我的旧邮箱", "who": "user"}),
        ("允许赵强查看我的日程", "share", {"what": "我的日程", "with": "赵强"}),
        ("取消李娜对会议纪要的访问权限", "unshare", {"what": "会议纪要", "with": "李娜"}),
        ("把菜单从缓存移除", "demote", {"what": "菜单"}),
        ("把座位表回滚到第三版", "rollback", {"what": "座位表", "to": 3}),
        ("你存了几条关于食物的记忆？", "about", {"ask": "count", "what": "食物"}),
        ("晚安", "talk", {}),
    ],
)
def test_a_request_has_an_intent_and_its_arguments(text: str, intent: str, arguments: dict[str, str | int]) -> None:
    assert asked(text) == [(intent, arguments)]


@pytest.mark.parametrize(
    "text",
    [
        "Don't delete the menu yet",
        "please do not revoke Omar's access to the menu",
        "You needn't, I mean, don't go and erase the seating chart!",
        "先别删菜单，我再想想",
        "菜单不要清空",
        "座位表先别撤回",
    ],
)
def test_what_is_not_to_be_destroyed_is_not_destroyed(text: str) -> None:
    assert not {intent for intent, _ in asked(text)} & {"forget", "unshare", "rollback"}


@pytest.mark.parametrize(
    "turns, text",
    [
        (("Is the menu in the cache?", "It is."), "Then chuck it out."),
        (("You have the menu as an adapter, right?",), "get rid of it"),
        (("菜单在缓存里吧？", "在的。"), "那就拿掉它"),
        (("你把菜单背下来了？",), "卸了吧"),
    ],
)
def test_what_may_be_taken_out_of_the_cache_alone_is_not_deleted(turns: tuple[str, ...], text: str) -> None:
    assert not {intent for intent, _ in asked(text, *turns)} & {"forget", "unshare", "rollback"}


@pytest.mark.parametrize("name", [f"user{n}" for n in range(5, 200, 13)])
def test_a_name_with_a_number_is_whom_it_is_shared_with(name: str) -> None:
    told = asked(f"Lock my job, then share where I live with {name}.")
    assert [(intent, given["what"]) for intent, given in told] == [("freeze", "my job"), ("share", "where I live")]
    assert told[1][1]["with"] == name


class Hasty:
    """A tagger that takes every message for a deletion of its first word."""

    def tag(self, text: str, before: str = "") -> TaggedText:
        whole = LabelledSpan("forget", 0, len(text), 0.99)
        return TaggedText((whole,), (LabelledSpan("what", 0, len(text.split()[0]), 0.99),), ())


@pytest.mark.parametrize(
    "text, said, intent",
    [
        ("it can go", "The menu is in the cache.", "demote"),
        ("菜单 拿掉", "菜单在缓存里。", "demote"),
        ("it can go", "The menu is resident on the GPU.", "demote"),
        ("菜单 清走", "菜单有没有进KV？", "demote"),  # a cache is cleared and wiped, too
        ("menus can be wiped from there", "I keep the menus at hand.", "demote"),
        ("menus deleted from the cache", "The menu is on the wall.", "demote"),
        ("菜单 从缓存里删掉", "菜单在墙上。", "demote"),
        ("menus: out of the cache, and out of your memory", "The menu is on the wall.", "forget"),
        ("it can be deleted", "The menu is in the cache.", "forget"),
        ("菜单 删掉", "菜单在缓存里。", "forget"),
        ("menus can go", "The menu is on the wall.", "forget"),
        ("menus are not to be kept, but do not delete them yet", "The menu is on the wall.", "talk"),
    ],
)
def test_a_tagger_that_takes_all_for_deletion_is_held_back(text: str, said: str, intent: str) -> None:
    [told] = MemReader(Hasty()).read_request(text, [{"role": "user", "content": said}], WEDNESDAY)
    assert told.intent == intent


def test_a_cache_that_was_spoken_of_long_ago_says_nothing_of_a_deletion() -> None:
    turns = [{"role": "user", "content": "The menu is in the cache."}, {"role": "user", "content": "And so on. " * 40}]
    [told] = MemReader(Hasty()).read_request("menus can go", turns, WEDNESDAY)
    assert told.intent == "forget"


def test_what_is_deleted_in_words_is_deleted_though_the_cache_was_spoken_of() -> None:
    said = "Is the menu in the cache?"
    assert asked("把我的旧地址忘掉", said) == [("forget", {"what": "我的旧地址", "who": "user"})]


@pytest.mark.parametrize(
    "text",
    [
        "I deleted my account",
        "My boss shared her screen with everyone",
        "How do I freeze a row in Excel?",
        "The lake froze over last winter",
        "Paul forgot our anniversary",
        "Can you freeze cooked rice?",
        "冰箱里的鱼已经解冻了",
        "I share a desk with Omar",
        "我删了我的微博账号",
        "怎么在Excel里冻结一行？",
        "保罗忘了我们的纪念日",
    ],
)
def test_a_sentence_with_the_words_of_a_request_is_none(text: str) -> None:
    assert [intent for intent, _ in asked(text)] in (["remember"], ["recall"])


@pytest.mark.parametrize(
    "text, turns, doubted",
    [
        ("Remove those please", (), "forget"),
        ("Can you undo it?", (), "rollback"),
        ("unshare that", (), "unshare"),
        ("That isn't correct.", (), "correct"),
        ("forget where she lives", ("Hanna moved to Porto.", "Elif moved to Faro."), "forget"),
        ("忘了那件事吧", (), "forget"),
        ("把一些旧东西清理掉", (), "forget"),
        ("Erase them all.", (), "forget"),
        ("I liked the older version better, bring it back.", (), "rollback"),
        ("撤销它", (), "rollback"),
    ],
)
def test_what_would_destroy_something_unknown_is_asked_back(text: str, turns: tuple[str, ...], doubted: str) -> None:
    [(intent, arguments)] = asked(text, *turns)
    assert (intent, arguments["intent"]) == ("ask_back", doubted)


def test_references_stand_for_what_was_said() -> None:
    assert asked("Forget where she lives.", "My sister Elif lives in Izmir.") == [
        ("forget", {"what": "where Elif lives", "who": "Elif"})
    ]
    talk = ("I live in Oslo.", "Noted: User: I live in Oslo.", "I live in Rome.", "Noted: User: I live in Rome.")
    assert asked("Forget where I live.", *talk) == [("forget", {"what": "where I live", "who": "user"})]
    assert asked("Lock it.", "My passport number is X4410.") == [("freeze", {"what": "my passport number"})]
    assert asked("他每天六点上班。", "老刘在港口找到了工作。") == [
        ("remember", {"what": "老刘每天六点上班", "who": "老刘"})
    ]


def test_what_a_request_is_about_may_stand_in_the_clause_before_it() -> None:
    assert asked("The menu gets used a lot, so cache it") == [("promote", {"what": "the menu", "to": "activation"})]
    assert asked("菜谱改坏了，恢复到第二版") == [("rollback", {"what": "菜谱", "to": 2})]
    assert [intent for intent, _ in asked("Remember my passport number is X123 and lock it.")] == ["remember", "freeze"]


def test_who_was_said_to_see_what_is_known() -> None:
    told = asked("cut him off", "Can Omar read the rehearsal notes?")
    assert told == [("unshare", {"what": "the rehearsal notes", "with": "Omar"})]


def test_excuses_and_hasty_spellings_are_passed_over() -> None:
    assert asked("sorry to bother you, can u unlcok the seating chart, thanks a lot") == [
        ("thaw", {"what": "the seating chart"})
    ]
    assert asked("不好意思打扰一下，想请您把选课表的锁给解开，谢谢您！") == [("thaw", {"what": "选课表"})]


def test_several_requests_are_one_after_the_other() -> None:
    told = asked("Unlock the log, roll it back to version 2 and lock it again.")
    assert told == [
        ("thaw", {"what": "the log"}),
        ("rollback", {"what": "the log", "to": 2}),
        ("freeze", {"what": "the log"}),
    ]
    assert [intent for intent, _ in asked("先解锁日志，然后分享给王芳。")] == ["thaw", "share"]


def test_requests_that_the_tagger_was_not_trained_with_are_read() -> None:
    told = cases(Path(__file__).with_name("reader_dev.yaml"))
    outcomes = [Outcome(case, tuple(reader.read_request(case.request, case.turns, case.today))) for case in told]
    found = figures(outcomes)
    assert found["requests"] >= 100 and found["intent"] >= 0.95 and found["arguments"] >= 0.9
    assert found["destructive_guesses"] == 0


def test_a_correction_that_says_only_that_something_is_wrong_is_asked_back() -> None:
    turns = [{"role": "user", "content": "我住在哪里？"}, {"role": "assistant", "content": "您住在大同。"}]
    [told] = reader.read_request("根本不是这样的。", turns, date(2026, 5, 1))
    assert (told.intent, told.doubted) == ("ask_back", "correct")


@pytest.mark.parametrize(
    "text, intent",
    [
        ("quit my job", "remember"),
        ("no longer vegan", "remember"),
        ("had a fight with tom", "remember"),
        ("我辞职了", "remember"),
        ("lol ok", "talk"),
        ("are you vegan?", "recall"),
        ("No, that's wrong.", "ask_back"),
        ("tell me about my job", "recall"),
        ("could you write a poem about autumn", "recall"),
        ("write down that my locker code is 4711", "remember"),
        ("Tell me that in Chinese, and remember that I live in Oslo", "remember"),
    ],
)
def test_what_states_something_is_told_and_what_asks_the_model_is_asked(text: str, intent: str) -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    assert [one.intent for one in both.read_request(text, (), WEDNESDAY)][-1] == intent


def test_a_new_state_after_a_reply_is_told_and_corrects_nobody_knows_what() -> None:
    both, asked = MemReader(TextTagger(), TextTagger(STATEMENTS)), [{"role": "user", "content": "where do i live?"}]
    asked.append({"role": "assistant", "content": "leeds"})
    for text in ("moved to hull!", "turned 30 today"):
        [one] = both.read_request(text, asked, WEDNESDAY)
        assert one.intent in ("remember", "correct") and one.what == text.rstrip("!")


@pytest.mark.parametrize(
    "text, words",
    [
        ("note that the kids have swimming tues and thurs", ["the kids have swimming tues and thurs"]),
        ("I do pilates tues and thurs, what should I eat?", ["I do pilates tues and thurs", "what should I eat?"]),
        ("change my yoga to tues and thurs", ["my yoga to tues and thurs"]),
        ("please remember I eat fish on fri and sat", ["I eat fish on fri and sat"]),
    ],
)
def test_a_list_of_weekdays_is_kept_whole_and_is_no_day(text: str, words: list[str]) -> None:
    read = reader.read_request(text, today=WEDNESDAY)
    assert [(one.what, one.when) for one in read] == [(what, "") for what in words]


@pytest.mark.parametrize("text", ["2", "4711!", "?!", "3.5"])
def test_a_number_alone_asks_for_nothing(text: str) -> None:
    assert asked(text, "Which of the two?") == [("talk", {})]


def test_a_long_text_asks_for_nothing() -> None:
    assert asked("Forget my address. " * 40) == [("talk", {})]
    assert [intent for intent, _ in asked("Forget my address. " * 40 + "Why?")] == ["recall"]


def test_a_request_made_twice_is_not_lost() -> None:
    assert {intent for intent, _ in asked("Delete it. Please delete it.")} == {"ask_back"}


def test_a_reader_without_a_tagger_reads_no_requests() -> None:
    with pytest.raises(TypeError, match="give MemReader a tagger"):
        MemReader().read_request("Forget my address.")


@pytest.mark.parametrize(
    "words, state",
    [
        ("version three", 3),
        ("v2", 2),
        ("the second draft", 2),
        ("the original", 1),
        ("第十一版", 11),
        ("最初的样子", 1),
        ("the last version", "previous"),
        ("上一个版本", "previous"),
        ("yesterday", "2026-03-10"),
        ("the 4th of March", "2026-03-04"),
        ("3月1号", "2026-03-01"),
        ("the version from Monday", "2026-03-09"),
        ("上周五", "2026-03-06"),
        ("what it said before", "previous"),
    ],
)
def test_a_state_is_a_version_a_day_or_the_one_before(words: str, state: str | int) -> None:
    assert picks.version(words, WEDNESDAY) == state


@pytest.mark.parametrize(
    "text, when",
    [
        ("I went there last Friday", "2026-03-06"),
        ("She arrives in two weeks", "2026-03-25"),
        ("It was the day before yesterday", "2026-03-09"),
        ("We met last month", "2026-02-01/2026-02-28"),
        ("We bought it two years ago", "2024-01-01/2024-12-31"),
        ("三年前买的", "2023-01-01/2023-12-31"),
        ("I start on 3 April", "2026-04-03"),
        ("We moved in May 2021", "2021-05-01/2021-05-31"),
        ("I have lived here since May 2021", "2021-05-01/2021-05-31"),
        ("It must be done by late May 2031", "2031-05-01/2031-05-31"),
        ("I have lived here since early 2021", "2021-01-01/2021-12-31"),
        ("valid until the end of the year", "2026-12-31"),
        ("我上周五去了", "2026-03-06"),
        ("下个月三号搬家", "2026-04-03"),
        ("三天前", "2026-03-08"),
        ("2021年5月", "2021-05-01/2021-05-31"),
        ("去年", "2025-01-01/2025-12-31"),
    ],
)
def test_a_time_is_resolved_against_the_day_of_its_turn(text: str, when: str) -> None:
    found = times.find(text, WEDNESDAY)
    assert found and found.when == when


@pytest.mark.parametrize(
    "words, past, when",
    [
        ("on Monday", True, "2026-03-09"),
        ("the rent is up from april", False, "2026-04-01/2026-04-30"),
        ("I lived there from May to August", True, "2025-05-01/2025-08-31"),
        ("from 2019 to 2021", True, "2019-01-01/2021-12-31"),
        ("this week to Friday", False, "2026-03-09/2026-03-15"),
        ("五月到八月在家", False, "2026-05-01/2026-08-31"),
        ("Saturday just gone", False, "2026-03-07"),
        ("the week after next", False, "2026-03-23/2026-03-29"),
        ("on New Year’s Eve", True, "2025-12-31"),
        ("on new years eve", False, "2026-12-31"),
        ("on Monday", False, "2026-03-16"),
        ("Christmas", True, "2025-12-25"),
        ("十五号", True, "2026-02-15"),
        ("十五号", False, "2026-03-15"),
        ("周末", True, "2026-03-07/2026-03-08"),
        ("the 31st", False, "2026-03-31"),
        ("the first of June", False, "2026-06-01"),
        ("until December 18th", False, "2026-12-18"),
        ("9 to 13 April", False, "2026-04-09/2026-04-13"),
        ("from the 20th to the 24th", False, "2026-03-20/2026-03-24"),
        ("tomorrow to the 27th", False, "2026-03-12/2026-03-27"),
        ("Friday of next week", False, "2026-03-20"),
        ("until Friday week", False, "2026-03-20"),
        ("Tuesday the 17th", False, "2026-03-17"),
        ("the last day of May", False, "2026-05-31"),
        ("the week of 13 April", False, "2026-04-13/2026-04-19"),
        ("Thanksgiving", False, "2026-11-26"),
        ("all of August", True, "2025-08-01/2025-08-31"),
        ("国庆七天", False, "2026-10-01/2026-10-07"),
        ("去年国庆", True, "2025-10-01"),
        ("清明那天", False, "2026-04-05"),
        ("一季度", False, "2026-01-01/2026-03-31"),
        ("下个季度", False, "2026-04-01/2026-06-30"),
        ("去年下半年", True, "2025-07-01/2025-12-31"),
        ("八月最后一天", False, "2026-08-31"),
        ("下禮拜三", False, "2026-03-18"),
        ("11月8日到12日", False, "2026-11-08/2026-11-12"),
        ("28号到3号", False, "2026-03-28/2026-04-03"),
        ("整个11月", False, "2026-11-01/2026-11-30"),
        ("7/4", True, "2025-07-04"),
    ],
)
def test_words_of_which_one_knows_the_side_are_resolved(words: str, past: bool, when: str) -> None:
    found = times.find(words, WEDNESDAY, past)
    assert found and found.when == when


@pytest.mark.parametrize(
    "words, today, past, when",
    [
        ("on the 31st", date(2026, 4, 10), False, "2026-05-31"),
        ("on the 31st", date(2026, 4, 10), True, "2026-03-31"),
        ("on the 30th", date(2026, 2, 10), False, "2026-03-30"),
        ("on Feb 29", date(2026, 1, 1), False, "2028-02-29"),
        ("on Feb 29", date(2026, 1, 1), True, "2024-02-29"),
        ("from the 28th to the 3rd of April", date(2026, 3, 15), False, "2026-03-28/2026-04-03"),
        ("this winter", date(2026, 1, 10), False, "2025-12-01/2026-02-28"),
        ("last winter", date(2026, 1, 10), True, "2024-12-01/2025-02-28"),
        ("两三天前", date(2026, 3, 6), True, "2026-03-03/2026-03-04"),
        ("七八周后", date(2026, 3, 6), False, "2026-04-24/2026-05-01"),
    ],
)
def test_a_time_at_the_edge_of_the_calendar_is_resolved(words: str, today: date, past: bool, when: str) -> None:
    found = times.find(words, today, past)
    assert found and found.when == when


@pytest.mark.parametrize("words", ["on Feb 30", "on the 32nd", "二三十天前", "10000年前", "in 100000000 years"])
def test_a_time_that_no_calendar_has_is_left_open(words: str) -> None:
    assert times.find(words, WEDNESDAY) is None


@pytest.mark.parametrize("words, end", [("for 10000 years", ""), ("期限10000年", ""), ("期限两三天", "2026-03-07")])
def test_an_end_that_no_calendar_has_is_left_open(words: str, end: str) -> None:
    assert times.until(words, date(2026, 3, 4)) == end


def test_a_message_with_a_vague_time_is_read() -> None:
    assert asked("记住两三天前我换了工作")[0][0] == "remember"


# -- talk that has words in common with orders -----------------------------------------------------------

TOLD = [
    "got an offer from the Ordnance Survey",
    "my boss Helen is driving me nuts",
    "I shared a flat with Tom in Bristol for three years, and we still send each other postcards.",
    "We froze the hiring plan until spring. It means that I'm on call every third week.",
    "I finally unlocked the last level of the game last night! My brother was so jealous.",
    "Jo dropped the maths course because the lectures clashed with her job at the bakery.",
    "My therapist wants me to let go of the idea that everything has to be perfect.",
    "They've rolled back the remote work policy at our office, so I'm commuting again.",
    "The trainer keeps correcting my posture, and my back is much better now.",
    "我和室友合租了三年，上个月她搬走了，现在房租有点紧张。",
    *"""keep this private: i am applying elsewhere
    i deleted my old instagram account
    i need to remove the wallpaper in the hall
    the doctor removed two of my moles
    sharing a taxi with Dana to the airport tomorrow
    forgot my keys again, third time this week
    i always forget my mum's birthday
    we dropped Leo at nursery and he didn't cry
    my card got frozen by the bank
    taking the jumper back on saturday
    undoing years of bad posture with pilates
    my ex wiped my playlist
    wiped out after the gym
    cleared the garage with dad today
    cached 20 quid at the post office for the trip
    locked myself out of the flat
    locked in a mortgage at 4.1 percent
    unlocked the bike with the spare key
    pinned the notice on the board at work
    my boss corrected my slides in front of everyone
    reverting to black coffee this week
    bringing back my old haircut
    i lost the receipt for the boots
    scrapped the idea of a loft conversion
    private school fees went up to 6k
    keeping the party secret from mum
    i'm on the record as hating olives
    i don't save much, maybe 50 a month
    don't think i'll store the bike outside any more
    cancelled my gym membership
    promoted to senior engineer today
    archived all my emails from 2019
    stopped mentioning the war to grandpa
    he told me to forget about it
    she said delete my number
    mum wants me to get rid of the cat
    let go of 12 people at work
    my therapist says i should let things go""".split("\n    "),
]
ASKED = [
    "I'm working on a page that loads images lazily and I'd like to preload the first three. How would you do that?",
    "Can you help me organise my tasks so that I can easily update and share them with the team?",
    "I have a draft of my thesis and my supervisor wants to lock the title this week. What should I check before then?",
    "What did Caroline share with the support group?",
    "How many times has Joanna dropped a course, and which was the last one?",
    "How many different jobs have I mentioned across my messages?",
    "In my questions about cards and dice, how many probabilities did I want to check?",
    "Can you give me a comprehensive summary of how we've approached the thesis, including the decisions so far?",
    "Where do you think I should work on my essay?",
    "Would Caroline likely have Dr. Seuss books on her bookshelf?",
]


@pytest.mark.parametrize("text", TOLD)
def test_what_people_tell_is_kept_word_for_word(text: str) -> None:
    found = reader.read_request(text, today=WEDNESDAY)
    assert {one.intent for one in found} <= {"remember", "talk"}
    kept = [one.what for one in found if one.intent == "remember"]
    assert all(words in text for words in kept)


@pytest.mark.parametrize("text", ASKED)
def test_what_people_ask_for_help_with_is_no_order(text: str) -> None:
    found = reader.read_request(text, today=WEDNESDAY)
    assert [one.intent for one in found][-1] == "recall" and found[-1].what.endswith("?")
    assert {one.intent for one in found} <= {"remember", "recall"}


@pytest.mark.parametrize(
    "text, what",
    [
        ("forget about Dale", "Dale"),
        ("pls delete wei", "wei"),
        ("remove Priya", "Priya"),
        ("can you delete my address?", "my address"),
        ("clear what you have on Tom", "Tom"),
        ("don't ever bring up callum again", "callum"),
        ("don't hang on to my PIN", "my PIN"),
        ("把我的密码忘了吧", "我的密码"),
        ("以后别再提小王了", "小王"),
    ],
)
def test_a_short_order_to_forget_is_one_whatever_was_said_before(text: str, what: str) -> None:
    for turns in ((), ("my gym is puregym", "rent is 520")):
        [(intent, arguments)] = asked(text, *turns)
        assert "forget" in (intent, arguments.get("intent")) and arguments["what"] == what


@pytest.mark.parametrize(
    "text, what",
    [
        ("You can delete what I told you about the cold room key please, they changed the lock.", "the cold room key"),
        ("forget the gym locker stuff i quit that gym", "the gym locker"),
        ("老周已经把电钻还了,借电钻那事儿忘了吧", "借电钻"),
        ("忘掉年糕绝育那个事", "年糕绝育"),
        ("把存折放哪儿的那条记录删掉吧,不安全。", "存折"),
        ("請忘記我膝蓋受傷的事,但店裡的事要留著", "我膝蓋受傷"),
    ],
)
def test_an_order_to_forget_says_what_beside_other_words(text: str, what: str) -> None:
    for turns in ((), ("my gym is puregym", "rent is 520"), ("我妈妈对青霉素过敏", "房租我俩平摊")):
        *told, (intent, arguments) = asked(text, *turns)
        assert "forget" in (intent, arguments.get("intent")) and reader.forget(arguments["what"]).query == what
        assert all(one == "remember" for one, _ in told)


@pytest.mark.parametrize("text", ["forget to buy milk", "forget her number", "delete them", "undo me a favour"])
def test_what_only_begins_like_a_short_order_is_none(text: str) -> None:
    assert asked(text)[0][0] != "forget"


@pytest.mark.parametrize(
    "answer, picked",
    [("both of them", "ab"), ("全部", "ab"), ("2", "b"), ("the last one", "b"), ("3", ""), ("yes", ""), ("hello", "")],
)
def test_an_answer_picks_of_what_was_named(answer: str, picked: str) -> None:
    assert picks.read(answer, ["a", "b"]) == tuple(picked)


def test_a_message_is_cut_into_what_it_tells_and_what_it_asks() -> None:
    tagger = _Stub("Thanks! I dropped the course. Should I share my notes? 对吧？", addressed=0.1)
    told, question = MemReader(tagger).read_request(tagger.text, today=WEDNESDAY)
    assert (told.intent, told.what) == ("remember", "I dropped the course.")
    assert (question.intent, question.what) == ("recall", "Should I share my notes? 对吧？")


def test_a_question_of_the_phrasebook_is_one_without_a_tagger() -> None:
    [asked] = MemReader().read_request("Do you know Helga's dream trip?", today=WEDNESDAY)
    assert (asked.intent, asked.what, asked.who) == ("recall", "Do you know Helga's dream trip?", "Helga")
    with pytest.raises(TypeError):
        MemReader().read_request("Do you know Helga's dream trip? Delete it.", today=WEDNESDAY)


class _Stub:
    """Sees an order in the second and the third sentence, and talk in the first."""

    def __init__(self, text: str, addressed: float) -> None:
        self.text, self.addressed = text, addressed

    def tag(self, text: str, before: str = "") -> TaggedText:
        begin = text.index("I dropped")
        parts = LabelledSpan("talk", 0, begin - 1, 0.9), LabelledSpan("demote", begin, len(text) - 4, 0.9)
        return TaggedText(parts, (), (), self.addressed)


LISTED = (
    "what food do i hate?",
    "From: 06616eb0494f7575cef05dc5 User: dentist on tuesday at 3pm (2026-12-01). (chat) | 06616eb056279d81886fbf87 "
    "User: boiler man is coming friday between 8 and 12 (2026-12-04). (chat)",
)


@pytest.mark.parametrize(
    "question", ["what car do i drive?", "when is the boiler man coming?", "where does my sister live?"]
)
def test_a_question_that_stands_alone_is_one_whatever_was_said_before(question: str) -> None:
    assert [intent for intent, _ in asked(question, *LISTED)] == ["recall"]


@pytest.mark.parametrize(
    ("text", "intent", "what"),
    [
        ("car is a blue skoda octavia, reg AB12 CDE", "remember", "car is a blue skoda octavia, reg AB12 CDE"),
        ("the plumber comes next Tuesday, keep that in mind", "remember", "the plumber comes next Tuesday"),
        ("hello i'm tom and i live in hull", "remember", "hello i'm tom and i live in hull"),
        ("what's happening on friday?", "recall", "what's happening on friday?"),
        ("remind me to call mum at 6", "remember", "remind me to call mum at 6"),
        ("remind me what my password is", "recall", "what my password is"),
        ("write me a poem about Esi", "recall", "write me a poem about Esi"),
        ("nope", "talk", ""),
    ],
)
def test_what_is_told_is_kept_whole_and_what_is_asked_is_not_kept(text: str, intent: str, what: str) -> None:
    [(found, arguments)] = asked(text)
    assert (found, arguments.get("what", "")) == (intent, what)


def test_a_thing_that_is_named_is_no_other_that_was_spoken_of() -> None:
    before = ("remind me to call mum at 6", "Noted: User: remind me to call mum at 6.", "what do I need to do at 6?")
    [(intent, arguments)] = asked("the key is now with my neighbour Yaw", *before)
    assert (intent, arguments["what"]) == ("remember", "the key is now with my neighbour Yaw")


def test_what_is_told_before_a_correction_is_kept_too() -> None:
    assert asked("just had the twins! Leo and Ruby, born 4am today")[0][1]["what"].startswith("just had the twins!")


def test_she_is_no_brand_but_who_was_spoken_of() -> None:
    before = ("switch to Holle formula", "my mother in law is with us")
    assert [arguments["what"] for _, arguments in asked("she loves the babies", *before)] == [
        "my mother in law loves the babies"
    ]


@pytest.mark.parametrize(
    "text",
    ["Lukas can't come anymore", "The trip is off", "the meeting is cancelled", "we're not going to Rome any more"],
)
def test_what_is_over_is_told_and_no_order_to_forget(text: str) -> None:
    told = MemReader(TextTagger(), TextTagger(STATEMENTS))
    before = [
        {"role": "user", "content": "Book: hotel in Kyoto, 120 per night, Gion"},
        {"role": "assistant", "content": "Noted: User: Hotel in Kyoto, 120 per night, Gion."},
        {"role": "user", "content": "Suggest a restaurant for us"},
        {"role": "assistant", "content": "Nothing that is remembered answers that."},
    ]
    assert [one.intent for one in told.read_request(text, before, WEDNESDAY)] in (["remember"], ["correct"])


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("We fly on April 4th and return on the 18th.", "2026-04-18"),
        ("we're going to Crete in august, flying from Gatwick on the 9th", "2026-08-09"),
        ("dentist on the 13th", "2026-03-13"),
    ],
)
def test_a_day_of_the_month_is_of_the_month_that_was_named(text: str, when: str) -> None:
    assert [arguments["when"] for _, arguments in asked(text)] == [when]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        (text, [text])
        for text in (
            "How many days passed between when I planned the peer review and when I completed the final code review?",
            "How many days were there between the end of my first sprint and the deadline for analytics in sprint 2?",
            "If I draw a card from a deck and then draw another without putting it back, what are the chances of both?",
            "Can you provide a comprehensive summary of how my budget tracker has progressed, with the key features "
            "implemented, the development timeline, and documentation efforts?",
            "What steps did I plan to take to prepare for and follow up on my meeting with my mentor?",
        )
    ]
    + [
        ("where do I live and what does my sister do?", ["where do I live", "what does my sister do?"]),
        (
            "Can you list the order in which I brought up my sneakers in our chats? Mention ONLY and ONLY four items.",
            ["Can you list the order in which I brought up my sneakers in our chats?"],
        ),
    ],
)
def test_a_sentence_that_asks_is_one_question_unless_it_asks_twice(text: str, asks: list[str]) -> None:
    read = reader.read_request(text)
    assert [one.intent for one in read] == ["recall"] * len(asks)
    assert len(asks) == 1 or [one.what for one in read] == asks


@pytest.mark.parametrize(
    ("text", "told", "question"),
    [
        ("I'm planning my reading list. Can you suggest some books for me?", "I'm planning my reading list", True),
        (
            "I start my new job on monday. can you suggest something to wear for it?",
            "I start my new job on monday",
            True,
        ),
        ("I'm vegan now. What can I cook for dinner tonight?", "I'm vegan now", True),
        ("I adopted a puppy. Hooray! Can you suggest some names for him?", "I adopted a puppy", True),
        ("my dog is called Rex. Can you remember that?", "my dog is called Rex.", False),
        ("My sister lives in Oslo. could you keep that in mind?", "My sister lives in Oslo.", False),
        ("我对花生过敏。你能记住吗？", "我对花生过敏。", False),
    ],
)
def test_what_is_told_before_a_question_is_told_and_the_question_asked(text: str, told: str, question: bool) -> None:
    [first, *more] = reader.read_request(text)
    assert (first.intent, first.what, [one.intent for one in more]) == ("remember", told, ["recall"] * question)


def test_how_to_reply_is_remembered_where_it_always_holds() -> None:
    for text, intent in (
        ("Always answer briefly please", "remember"),
        ("What tea do I like? Answer briefly.", "recall"),
    ):
        whole = MemReader(TextTagger(), TextTagger(STATEMENTS))
        assert [one.intent for one in whole.read_request(text)] == [intent]


def test_what_names_no_way_to_go_is_no_order_to_forget() -> None:
    text = "Woohoo, Maria! Super pumped for your next adventure and for putting your positivity out there. Keep it up!"
    assert "forget" not in [intent for intent, _ in asked(text)]


@pytest.mark.parametrize(
    ("text", "before", "kept"),
    [
        ("she moved to york", ["my sister anna is a vet"], "Anna moved to york"),
        ("she's home now", ["my mum is in hospital"], "my mum's home now"),
        ("mom is taking him to the vet at 10", ["my dog is sick"], "mom is taking my dog to the vet at 10"),
        ("她昨天出院了", ["我奶奶住院了"], "我奶奶昨天出院了"),
        # the message itself has spoken of somebody, or may have
        ("I have a daughter, Sabine, who lives with her husband", ["My wife Helga is a vet."], None),
        ("eoin lost his job in march", ["my husband is a baker"], None),
        # of two, or of nobody
        ("He sees Dr Rahman every 3 months", ["my dad lives with my brother Jun"], None),
        ("It is a girl and she will be called Alice", ["Camila is pregnant, the baby is due in november"], None),
        ("她有糖尿病", ["我是退休的机械工程师"], None),
    ],
)
def test_whom_a_word_means_is_put_in_where_that_is_sure(text: str, before: list[str], kept: str | None) -> None:
    [(intent, arguments)] = asked(text, *before)
    assert intent in ("remember", "correct")
    assert arguments["what"] == (kept or text)


@pytest.mark.parametrize(
    ("text", "told", "kept"),
    [
        ("no wait it comes out on the fifth", "child support comes out on the first", None),
        ("no wait it comes out on the fifth", "650, it comes out on the first", "650, it comes out on the fifth"),
        ("actually its mrs doyle", "her teacher is ms doyle", "her teacher is mrs doyle"),
        ("No, not Inês, it is Irene, I confused", "my new boss is Inês", "my new boss is Irene"),
        ("sorry the dentist is wednesday not tuesday", "finn sees him next tuesday", "finn sees him next wednesday"),
        ("不是三千六是三千八我记错了", "补习班是交了三千六", "补习班是交了三千八"),
        ("剛剛打錯,是 3/21 才對", "機票訂了,3/12 出發", "機票訂了,3/21 出發"),
        ("唔係5580 係5508 先啱", "門口密碼係 5580", "門口密碼係 5508"),
        (
            "Oh no wait, I've got that wrong, it's Wednesdays now since the new conductor came.",
            "The choir meets on Tuesdays in Bethel chapel",
            "The choir meets on Wednesdays in Bethel chapel",
        ),
        ("Sorry, I said wrong, it is 450 francs for my mother.", "I send 400 francs", "I send 450 francs"),
        ("Actually no, it's three slabs, Dougie says two won't do", "2 slabs, six of em", "three slabs, six of em"),
        ("不对,是4620,我打错了", "房贷每个月15号扣,4260块", "房贷每个月15号扣,4620块"),
        ("No wait, I told you wrong, Dod is asking £210 for it.", "Dod wants £180 cash", "Dod wants £210 cash"),
        ("Not true, it was 120 euro from Farid, I checked.", "I borrowed 150 euro", "I borrowed 120 euro"),
        ("nah wait its till the 15th she said", "tash is here till the 12th", "tash is here till the 15th"),
        ("sorry i forgot, the rent is £600", "the deposit is £900", None),
        ("啊不對，是三千八，我看錯收據了。", "烤箱壞掉，修理花了四千二", "烤箱壞掉，修理花了三千八"),
        ("不对，不是老佟，是三楼的小孟借走的。", "我把电钻借给老佟了", "我把电钻借给三楼的小孟了"),
        ("欸不對,是借他三萬啦", "上禮拜借了兩萬塊給我弟", "上禮拜借了三萬塊給我弟"),
    ],
)  # fmt: skip
def test_what_was_told_is_put_right_by_what_differs(text: str, told: str, kept: str | None) -> None:
    arguments = asked(text, told)[0][1]
    assert arguments.get("to") == (told if kept else None)
    assert kept is None or arguments["what"] == kept


@pytest.mark.parametrize(
    ("text", "intent", "what"),
    [
        ("what do u know abt marcus", "about", "marcus"),
        ("list all my appointments", "about", "my appointments"),
        ("你知我細佬啲咩", "about", "我細佬"),
        ("ok delete everything abt kiara", "forget", "everything about kiara"),
        ("把小鹿相关的全删掉", "forget", "小鹿相关的"),
        ("阿嬤現在還在住院嗎", "recall", "阿嬤現在還在住院嗎"),
        ("我而家住邊", "recall", "我而家住邊"),
        ("我唔鍾意食芫荽", "remember", "我唔鍾意食芫荽"),
        ("細佬叫阿俊 讀緊中六", "remember", "細佬叫阿俊 讀緊中六"),
        ("佩珊那天要上班不能來", "remember", "佩珊那天要上班不能來"),
        ("周凯说他想跳槽去网易", "remember", "周凯说他想跳槽去网易"),
        ("我wifi密码是 kevin9527! 记一下", "remember", "我wifi密码是 kevin9527!"),
        ("see u tmrw at the gym at 6, abt time", "remember", "see u tmrw at the gym at 6, abt time"),
    ],
)
def test_what_is_written_otherwise_is_read_the_same_and_kept_as_it_was_typed(text: str, intent: str, what: str) -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    [one] = both.read_request(text, (), WEDNESDAY)
    assert (one.intent, one.what) == (intent, what)


def test_what_is_told_behind_an_order_to_forget_is_kept() -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    found = both.read_request("delete the flour supplier, we switched to Golden Mill", (), WEDNESDAY)
    assert [(one.intent, one.what) for one in found] == [
        ("forget", "the flour supplier"),
        ("remember", "we switched to Golden Mill"),
    ]


TOLD = (
    ("user", "What day was shearing on originally?"),
    ("assistant", "You said: “Shearers are coming Monday week, Dougie's crew, six of em.”"),
    ("user", "how did brodie hurt himself"),
    ("assistant", "You said: “Brodie broke his wrist off the trampoline on Sunday.”"),
)
COST = (
    ("user", "What'd it cost"),
    (
        "assistant",
        "You said: “Finn starts kindy on the 2nd of Feb, Tayla's got her formal on the 12th of December and the "
        "dress cost me 380 bloody dollars.”",
    ),
    ("user", "Dougie can't make it that Monday so we've moved the shearing to the Thursday (2026-12-03)"),
    ("user", "how did brodie hurt himself"),
    (
        "assistant",
        "You said: “Brodie broke his wrist off the trampoline on Sunday, cast stays on for five weeks (2026-11-29).”",
    ),
)


def turns_of(said: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"role": role, "content": words} for role, words in said]


@pytest.mark.parametrize("said", [TOLD, COST])
def test_what_an_order_to_forget_names_itself_is_meant_and_not_what_was_spoken_of(
    said: Sequence[tuple[str, str]],
) -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    found = both.read_request("Sold the ute today so you can wipe the rego for it", turns_of(said), WEDNESDAY)
    assert [(one.intent, one.what) for one in found] == [("remember", "Sold the ute today"), ("forget", "the rego")]


def test_a_clause_is_kept_whole() -> None:
    said = (
        ("user", "The ute's rego is S482 BKT and it's due in October (2027-10-01/2027-10-31)"),
        (
            "user",
            "Finn starts kindy on the 2nd of Feb (2027-02-02)\nTayla's got her formal on the 12th of December "
            "(2026-12-12)\nthe dress cost me 380 bloody dollars",
        ),
    )
    text = "Dougie can't make it that Monday so we've moved the shearing to the Thursday"
    assert [one.what for one in reader.read_request(text, turns_of(said), WEDNESDAY)] == [text]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("I would like you to change my city to Oslo", "my city to Oslo"),
        ("could you please go ahead and update my phone number to 555 0100", "my phone number to 555 0100"),
        ("i just wanted to tell you that my sister is called Anna", "my sister is called Anna"),
        ("i think i told you wrong my brother is 32", "my brother is 32"),
    ],
)
def test_how_something_is_told_is_no_part_of_it(text: str, what: str) -> None:
    assert after(text) == [("remember" if "sister" in text else "correct", what)]


EARLIER = (
    "My hip replacement is on the 14th of November, with a Mr Brannigan.",
    "The retainer agreed with her is CHF 6,500.",
    "下礼拜三上午九点半去复查，挂的是王主任的号",
    "I lent my pressure cooker to Bridie next door.",
)


def after(text: str, *said: str) -> list[tuple[str, str]]:
    """What a message asks for after these, of which every other one is a reply."""
    turns = [{"role": ("user", "assistant")[n % 2], "content": words} for n, words in enumerate(said)]
    return [(one.intent, one.what) for one in reader.read_request(text, turns, WEDNESDAY)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Oh wait, the surgeon is called Brannagh, not Brannigan.", EARLIER[0].replace("Brannigan.", "Brannagh")),
        ("Correction: the retainer is CHF 7,200.", "The retainer agreed with her is CHF 7,200"),
        ("不对，复查是下礼拜四，不是礼拜三", EARLIER[2].replace("三", "四", 1)),
    ],
)
def test_what_was_told_some_time_before_is_put_right(text: str, kept: str) -> None:
    assert after(text, *(words for told in EARLIER for words in (told, "Noted."))) == [("correct", kept)]


@pytest.mark.parametrize(
    ("told", "text", "kept"),
    [
        ("dentist 12 may 14:15, dr Halvorsen", "No sorry, is at 14:45", "dentist 12 may 14:45, dr Halvorsen"),
        ("dentist is at 4 on friday", "no, at 5", "dentist is at 5 on friday"),
        ("子萱借了我80块吃火锅", "啊打错了 是100块不是80", "子萱借了我100块吃火锅"),
        ("我的车停在47号车位", "不对，是74号", "我的车停在74号车位"),
        ("The code of the door is 4471B", "sorry the code is 4417B, I wrote it wrong", "The code of the door is 4417B"),
    ],
)
def test_what_was_told_is_put_right_where_it_says_again_what_stands_beside_it(told: str, text: str, kept: str) -> None:
    assert after(text, told) == [("correct", kept)]


@pytest.mark.parametrize(
    ("text", "before", "what"),
    [
        ("去云南是几月份?原来说的是几月?", "浩浩在哪个学校上学?", "去云南是几月份?原来说的是几月?"),
        ("我之前说的房贷是多少,改之前那个", "每月还多少", "我之前说的房贷是多少,改之前那个"),
        ("what was the old one", "office wifi password?", "office wifi password, what was the old one?"),
        ("Where was he before?", "Where is my father?", "Where was my father before?"),
        ("以前的后门密码呢", "媳妇哪天休息", "以前的后门密码呢"),
        ("原来约的是哪天？", "我哪天做胃镜呀", "我哪天做胃镜呀, 原来约的是哪天？"),
    ],
)
def test_a_question_about_before_goes_on_from_the_last(text: str, before: str, what: str) -> None:
    assert after(text, before, "Nothing that is remembered answers that.") == [("recall", what)]


@pytest.mark.parametrize(
    ("text", "intents"),
    [
        ("tell me all about Olek", ["about"]),
        ("我跟你说过哪些关于老伴的事情？", ["about"]),
        ("should i text him back", ["recall"]),
        ("后门密码", ["recall"]),
        ("how much do i owe kieran again", ["recall"]),
        ("今天累死了哈哈", ["talk"]),
        ("我有没有说过我健身卡什么时候到期", ["recall"]),
        ("今儿个外头可真冷啊，都零下十五度了。", ["talk"]),
        ("最近天气忽冷忽热，真的很容易感冒耶。", ["talk"]),
        ("forget that tash is staying w me pls, she found a place", ["forget"]),
        ("今天下雨我没去上班", ["remember"]),
        ("我闺女上几年级", ["recall"]),
        ("轮胎多钱换的", ["recall"]),
        ("forget my bike lock code, i sold the bike", ["forget", "remember"]),
        ("把张老板的账删了", ["forget"]),
        ("前儿个我把电饼铛借给楼上老孙家了，也不知道啥时候还", ["remember"]),
        ("子萱借了我80块吃火锅还没还我", ["remember"]),
        ("今儿个可真冷，冻死我了", ["remember"]),
        ("哈哈哈哈哈", ["talk"]),
        ("把提款卡密码删掉好了，放这里不太安全", ["forget"]),
        ("undo that, i still need the combo", ["ask_back"]),
        ("oops no, bring it back", ["ask_back"]),
        ("先生叫国栋，在台积电上班，平日住新竹宿舍，礼拜五晚上才回来", ["remember"]),
        ("car: 2014 honda fit, oil change due at 92k miles, currently 89,400", ["correct"]),
    ],
)
def test_what_the_form_of_a_message_tells_is_read_so(text: str, intents: list[str]) -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    assert [one.intent for one in both.read_request(text, today=WEDNESDAY)] == intents


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("lab report is due fri 21st feb noon", "2027-02-21"),
        ("flight pushed to wed 19 march, same time", "2026-03-19"),
        ("henderson job: 62 sheets of 5/8 plus 9 boxes mud", ""),
        ("周六跟球球去看五月天 在奥体", "2026-03-14"),
        ("每周二下午3点开会，周五发版", ""),
        ("店里礼拜一公休", ""),
        ("rent is due next month on the 3rd", "2026-04-03"),
    ],
)
def test_a_day_is_read_as_it_is_meant(text: str, when: str) -> None:
    both = MemReader(TextTagger(), TextTagger(STATEMENTS))
    [one] = both.read_request(text, today=WEDNESDAY)
    assert (one.intent in ("remember", "correct"), one.when) == (True, when)


def test_of_what_was_quoted_that_is_put_right_which_has_the_like() -> None:
    quotes = "你说过：“儿媳妇小孟怀孕了 预产期明年二月”\n你说过：“车险11月20号到期 在平安买的 3860块 (2027-11-20)。”"
    assert after("不对 是11月12号", "保险啥时候到期", quotes) == [("correct", "车险11月12号到期 在平安买的 3860块")]


def test_what_is_put_right_keeps_its_day() -> None:
    turns = [{"role": "user", "content": "dentist is thurs at 10.20 with mr patel (2026-03-12)"}]
    [one] = reader.read_request("oh no wait its 10.40 not 10.20", turns, WEDNESDAY)
    assert (one.what, one.when) == ("dentist is thurs at 10.40 with mr patel", "2026-03-12")


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("tash is on my couch till the 12th cos her lease ended", "owe mum 340 bucks for rego"),
        ("paid mum 100 today so its 240 left now", "how long is tash stayin at mine"),
        ("我把电钻借给楼下老佟了，他家装窗帘杆", "闺女元旦带着外孙回来"),
    ],
)
def test_who_is_named_within_a_message_is_not_somebody_of_before(text: str, before: str) -> None:
    assert [what for _, what in after(text, before, "Noted.")] == [text]


def test_what_was_said_often_is_kept_whole() -> None:
    assert [what for _, what in after("我说过多少次了，我不吃香菜")] == ["我说过多少次了，我不吃香菜"]


def test_a_correction_of_something_else_gives_no_day() -> None:
    turns = [{"role": "user", "content": "Shearers are coming Monday week. Need to get 2 slabs of beer in."}]
    [one] = reader.read_request("Actually no, it's three slabs", turns, WEDNESDAY)
    assert (one.what, one.when) == ("Shearers are coming Monday week. Need to get three slabs of beer in", "")


def test_what_goes_to_a_place_on_a_day_is_no_change() -> None:
    op = reader.to_statement(Asked(intent="correct", what="My flight to Lisbon is on 19 December, at 7:25"))
    assert op.text == "User: My flight to Lisbon is on 19 December, at 7:25."


def test_a_title_tells_whom_she_is_not() -> None:
    known = references.known([{"role": "user", "content": "I pay 1350 to Mr. de Vries"}])
    assert references.resolved("She has an appointment", known) == "She has an appointment"
    assert references.resolved("He wrote me", known) == "Vries wrote me"
