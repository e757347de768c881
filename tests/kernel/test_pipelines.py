"""A message that asks for several things: shown, permitted as a whole, done as a whole, undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from memos.cube import NOTED, Form, MemCube, Namespace, State
from memos.errors import BadTransition, Denied, InputError, NotFound, UnsupportedLanguage
from memos.kernel.mem_os import MemOS
from memos.kernel.pipelines import Conversation
from memos.ops import Asked
from memos.rights import Caller

UNTIL = datetime(2030, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("pipelines") / "vault") as opened:
        yield opened


def test_what_a_message_asks_for_is_told_in_the_reply(kernel: MemOS, ada: str) -> None:
    reply = kernel.within(ada).chat("Remember that my job is baker.")
    assert [op.intent for op in reply.operations] == ["remember"]
    assert reply.operations[0].model_dump(exclude_defaults=True, by_alias=True) == {
        "what": "my job is baker",
        "who": "user",
    }


def test_a_pipeline_is_done_and_undone_as_a_whole(kernel: MemOS, ada: str, bob: str) -> None:
    kernel.within(ada).add("I live in Oslo.")
    reply = kernel.within(ada).chat(f"Please share where I live with {bob}, then lock it.")
    assert [op.intent for op in reply.operations] == ["share", "freeze"]
    [cube] = kernel.within(ada).memories()
    assert cube.state is State.FROZEN
    assert [hit.id for hit in kernel.within(bob).memories()] == [cube.id]
    kernel.within(ada).undo(reply.pipeline)
    assert kernel.within(ada).get(cube.id).state is State.ACTIVATED
    assert kernel.within(bob).memories() == []
    with pytest.raises(NotFound, match="no pipeline"):
        kernel.within(ada).undo(reply.pipeline)


def test_what_one_process_has_done_another_undoes(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path / "vault") as kernel:
        [cube] = kernel.within("ada").add("I live in Oslo.")
        kernel.within("ada").join("crew", "eve")
        kernel.within("ada").grant(cube.id, "bob", "reader", until=UNTIL)
        kernel.within("ada").grant(cube.id, "group:crew", "editor")
        given = set(kernel.within("ada").grants(cube.id))
        asked = [Asked(intent="unshare", what="where I live", with_=who) for who in ("bob", "group:crew")]
        done = kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id="ada"))), {})
        assert not kernel.within("ada").grants(cube.id)
    with MemOS(vault=tmp_path / "vault") as kernel:
        kernel.within("ada").undo(done.id)
        assert set(kernel.within("ada").grants(cube.id)) == given


def test_an_undo_that_fails_is_tried_again_from_there(kernel: MemOS, ada: str, bob: str) -> None:
    kernel.within(ada).add("I live in Oslo.")
    [job] = kernel.within(ada).add("My job is baker.")
    reply = kernel.within(ada).chat(f"Lock my job, then share where I live with {bob}.")
    assert [op.intent for op in reply.operations] == ["freeze", "share"]
    kernel.within(ada).thaw(job.id)
    with pytest.raises(BadTransition):
        kernel.within(ada).undo(reply.pipeline)
    assert kernel.within(bob).memories() == []
    kernel.within(ada).freeze(job.id)
    assert kernel.within(ada).undo(reply.pipeline) == [f"thaw {job.id}"]
    assert kernel.within(ada).get(job.id).state is State.ACTIVATED


def test_a_demotion_says_where_there_was_nothing_to_give_up(kernel: MemOS, ada: str) -> None:
    [cube] = kernel.within(ada).add("I live in Oslo.")
    asked = [Asked(intent="demote", what="where I live")]
    done = kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    assert "Nothing was done" in done.text and "I live in Oslo." in done.text and not done.id
    kv = kernel.within(ada).promote([cube.id], "activation")
    done = kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    assert done.text.startswith("As text again") and kernel.within(ada).get(kv.id).state is State.ARCHIVED
    kernel.within(ada).undo(done.id)
    assert kernel.within(ada).get(kv.id).state is State.ACTIVATED


def test_a_pipeline_of_another_is_not_undone(kernel: MemOS, ada: str, bob: str) -> None:
    kernel.within(ada).add("I live in Oslo.")
    reply = kernel.within(ada).chat("Freeze where I live.")
    with pytest.raises(NotFound, match="no pipeline"):
        kernel.within(bob).undo(reply.pipeline)


def test_where_one_step_is_denied_nothing_is_done(kernel: MemOS, ada: str, bob: str) -> None:
    [theirs] = kernel.within(ada).add("Mira lives in Rome.")
    kernel.within(ada).grant(theirs.id, bob, "reader")
    [own] = kernel.within(bob).add("My job is baker.")
    with pytest.raises(Denied):
        kernel.within(bob).chat("Freeze my job and lock where Mira lives.")
    assert kernel.within(bob).get(own.id).state is not State.FROZEN
    assert kernel.within(ada).get(theirs.id).state is not State.FROZEN


def test_what_is_not_clear_is_asked_back_and_the_next_message_answers(kernel: MemOS, ada: str) -> None:
    first, second = (kernel.within(ada).add(text)[0] for text in ("My locker code is 4711.", "My gate code is 9020."))
    asked = kernel.within(ada).chat("Delete it.")
    assert "Nothing was done" in asked.text and first.id in asked.text and second.id in asked.text
    assert len(kernel.within(ada).memories()) == 2
    done = kernel.within(ada).chat(second.id)
    assert done.forgotten == (second.id,)
    assert [c.id for c in kernel.within(ada).memories()] == [first.id]


@pytest.mark.parametrize("answer, place", [("the first one", 0), ("2", 1), ("第二个", 1)])
def test_an_answer_may_name_a_place(kernel: MemOS, ada: str, answer: str, place: int) -> None:
    for text in ("My locker code is 4711.", "My gate code is 9020."):
        kernel.within(ada).add(text)
    named = [line.split()[1] for line in kernel.within(ada).chat("Get rid of that one.").text.splitlines()[1:]]
    assert kernel.within(ada).chat(answer).forgotten == (named[place],)


def test_a_number_in_another_conversation_is_no_answer(tmp_path: Path, later: Callable[[timedelta], None]) -> None:
    cooking = [{"role": "user", "content": "Soup or salad?"}, {"role": "assistant", "content": "Which of the two?"}]
    with MemOS(vault=tmp_path / "vault") as kernel:
        for text in ("My locker code is 4711.", "My gate code is 9020."):
            kernel.add(text)
        question = kernel.chat("Delete it.").text
        assert not kernel.chat("2", turns=cooking).forgotten
        assert not kernel.chat("2", session="cooking").forgotten
        later(timedelta(minutes=11))
        assert not kernel.chat("2").forgotten  # what was that about?
        there = [{"role": "user", "content": "Delete it."}, {"role": "assistant", "content": question}]
        assert kernel.chat("2", turns=there).text == "Forgotten: My locker code is 4711."


def test_a_session_s_question_is_answered_in_it(kernel: MemOS, ada: str) -> None:
    for text in ("My locker code is 4711.", "My gate code is 9020."):
        kernel.within(ada).add(text)
    kernel.within(ada).chat("Delete it.", session="monday")
    assert not kernel.within(ada).chat("2").forgotten
    assert len(kernel.within(ada).chat("2", session="monday").forgotten) == 1


def test_another_message_is_no_answer(kernel: MemOS, ada: str) -> None:
    kernel.within(ada).add("My locker code is 4711.")
    kernel.within(ada).chat("Delete it.")
    assert [op.intent for op in kernel.within(ada).chat("Freeze my locker code.").operations] == ["freeze"]
    assert len(kernel.within(ada).memories()) == 1


def test_what_is_final_comes_last(kernel: MemOS, ada: str) -> None:
    """A step that fails leaves what was to be deleted."""
    code, job = (kernel.within(ada).add(text)[0] for text in ("My locker code is 4711.", "My job is baker."))
    asked = [Asked(intent="forget", what=code.id), Asked(intent="share", what=job.id, with_="nobody:x")]
    with pytest.raises(InputError, match="names nobody"):
        kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    asked[1] = Asked(intent="forget", what=job.id)
    kernel.within(ada).freeze(job.id)
    with pytest.raises(BadTransition, match="frozen and cannot be deleted"):
        kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    assert len(kernel.within(ada).memories()) == 2


def test_what_is_shared_and_deleted_leaves_nothing_to_undo(kernel: MemOS, ada: str, bob: str) -> None:
    [cube] = kernel.within(ada).add("My locker code is 4711.")
    asked = [Asked(intent="share", what=cube.id, with_=bob), Asked(intent="forget", what=cube.id)]
    done = kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    assert done.forgotten == (cube.id,) and not done.id


def test_one_statement_is_undone_with_what_it_replaced_and_nothing_else(kernel: MemOS, ada: str) -> None:
    """What somebody else changed meanwhile is not of the pipeline."""
    [oslo] = kernel.within(ada).add("I live in Oslo.")
    [job] = kernel.within(ada).add("My job is baker.")
    forming = kernel.services.forming
    promote = forming.promote

    def meanwhile(caller: Caller, ids: Sequence[str], to: Form) -> MemCube:
        kernel.within(ada).archive(job.id)
        return promote(caller, ids, to)

    forming.promote = meanwhile  # type: ignore[method-assign, assignment]
    try:
        asked = [
            Asked(intent="remember", what="I have moved to Rome"),
            Asked(intent="promote", what=kernel.within(ada).add("My locker code is 4711.")[0].id, to="activation"),
        ]
        done = kernel.services.pipelines.run(asked, Conversation(Caller(Namespace(user_id=ada))), {})
    finally:
        del forming.promote  # type: ignore[attr-defined]
    assert kernel.within(ada).get(oslo.id).state is State.ARCHIVED
    kernel.within(ada).undo(done.id)
    assert kernel.within(ada).get(oslo.id).state is State.ACTIVATED
    assert kernel.within(ada).get(job.id).state is State.ARCHIVED


def test_a_statement_alone_can_be_undone(kernel: MemOS, ada: str) -> None:
    [oslo] = kernel.within(ada).add("I live in Oslo.")
    reply = kernel.within(ada).chat("Remember that I have moved to Rome.")
    assert kernel.within(ada).get(oslo.id).state is State.ARCHIVED
    kernel.within(ada).undo(reply.pipeline)
    assert [c.id for c in kernel.within(ada).memories()] == [oslo.id]


@pytest.mark.parametrize("words", ["undo that", "scratch that!", "forget what I just said", "Don't save that.", "撤销"])
def test_what_was_done_just_before_is_taken_back(kernel: MemOS, ada: str, words: str) -> None:
    [oslo] = kernel.within(ada).add("I live in Oslo.")
    done = kernel.within(ada).chat("Remember that I have moved to Rome.")
    assert kernel.within(ada).get(oslo.id).state is State.ARCHIVED
    undone = "Undone: " if words.isascii() else "已撤销，刚才是："
    assert kernel.within(ada).chat(words).text == f"{undone}{done.text}"
    assert [c.id for c in kernel.within(ada).memories()] == [oslo.id]
    kernel.within(ada).chat(words)  # once
    assert [c.id for c in kernel.within(ada).memories()] == [oslo.id]


def test_what_another_conversation_has_done_is_not_taken_back(kernel: MemOS, ada: str, bob: str) -> None:
    done = kernel.within(ada).chat("Remember that I have moved to Rome.")
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    for reply in (
        kernel.within(bob).chat("undo that"),
        kernel.within(ada).chat("undo that", session="other"),
        kernel.within(ada).chat("undo that", turns=said),
    ):
        assert not reply.text.startswith("Undone")
    assert [c.id for c in kernel.within(ada).memories()] == [done.remembered[0].id]


def test_everything_that_names_somebody_is_forgotten(kernel: MemOS, ada: str) -> None:
    kept = kernel.within(ada).add("I owe Bob 5 quid.")
    gone = [*kernel.within(ada).add("Callum owes me 20 quid."), *kernel.within(ada).add("My boyfriend is Callum.")]
    said = [{"role": "user", "content": c.text} for c in (*gone, *kept)]
    reply = kernel.within(ada).chat("Forget everything you know about callum.", turns=said)
    assert set(reply.forgotten) == {c.id for c in gone}
    assert all(c.text in reply.text for c in gone)
    assert kernel.within(ada).memories() == kept
    reply = kernel.within(ada).chat("Forget everything you know about him.", turns=said)
    assert not reply.forgotten
    reply = kernel.within(ada).chat("Forget everything you know about me.")
    assert "Nothing was deleted" in reply.text and "delete_all" in reply.text
    assert kernel.within(ada).memories() == kept


def test_of_two_of_one_name_it_is_asked_which(kernel: MemOS, ada: str) -> None:
    both = [kernel.within(ada).add(text)[0].id for text in ("Sam from work is vegan", "Sam next door has a parrot")]
    asked = kernel.within(ada).chat("forget sam")
    assert not asked.forgotten and "Nothing was deleted" in asked.text and all(id in asked.text for id in both)
    assert sorted(kernel.within(ada).chat("all of them").forgotten) == sorted(both)


@pytest.mark.parametrize("words", ["forget about Dale", "delete dale pls", "never mention Dale again"])
@pytest.mark.parametrize("back", ["undo that", "no put that back", "撤销"])
def test_a_deletion_is_brought_back_and_it_is_said_how(kernel: MemOS, ada: str, words: str, back: str) -> None:
    kernel.within(ada).add("I like tea.")
    [turn] = kernel.within(ada).add([{"role": "user", "content": "dale has my clamps still"}])
    reply = kernel.within(ada).chat(words)
    assert reply.forgotten == (turn.id,) and "undo that" in reply.text
    assert not kernel.within(ada).chat("delete that").text.startswith("Undone")
    forgotten = "Forgotten: User: dale has my clamps still"
    undone = f"Undone: {forgotten}" if back.isascii() else f"已撤销，刚才是：{forgotten}"
    assert kernel.within(ada).chat(back).text == undone
    [_, again] = kernel.within(ada).memories()
    assert (again.text, again.header.kind, again.header.role) == (turn.text, turn.header.kind, "user")
    assert kernel.vault.named(turn.id) == []


@pytest.mark.parametrize(
    "words", ["delete that", "scrub the last thing i said", "forget what I just told you pls", "刚才说的删掉"]
)
def test_that_is_what_was_said_last(kernel: MemOS, ada: str, words: str) -> None:
    said = [{"role": "user", "content": text} for text in ("rent is 520", "i weigh 82 kilos")]
    first, last = (kernel.within(ada).add([turn])[-1] for turn in said)
    assert kernel.within(ada).chat(words, turns=said).forgotten[0] == last.id
    assert [c.id for c in kernel.within(ada).memories()] == [first.id]


def test_what_else_was_said_in_a_turn_stays(kernel: MemOS, ada: str) -> None:
    kernel.within(ada).add([{"role": "user", "content": "My boss is Meg. I live in Leeds."}])
    assert "Meg" in kernel.within(ada).chat("forget Meg").text
    assert [c.text for c in kernel.within(ada).memories()] == ["User: I live in Leeds."]


def test_what_is_described_in_part_is_not_deleted(kernel: MemOS, ada: str) -> None:
    [kept] = kernel.within(ada).add("My brother's birthday is 3 May.")
    reply = kernel.within(ada).chat("Forget my sister's birthday.")
    assert not reply.forgotten and kept.id in reply.text
    assert kernel.within(ada).chat("yes").forgotten == (kept.id,)


@pytest.mark.parametrize("words", ["delete everything", "forget all my memories pls", "Wipe everything you know."])
def test_all_of_a_user_is_not_deleted_by_a_message(kernel: MemOS, ada: str, words: str) -> None:
    kept = kernel.within(ada).add("My boss is Meg.")
    assert "delete_all" in kernel.within(ada).chat(words).text
    assert kernel.within(ada).memories() == kept


@pytest.mark.parametrize(
    "said, words",
    [
        ("i earn 52k", "pls remove my salary"),
        ("i earn 52k a year", "delete my pay"),
        ("i get paid 12 quid an hour", "forget my wage pls"),
        ("Mira earns £40,000.", "Delete Mira's salary."),
        ("my gp is dr shah", "forget my gp"),
        ("my email is a@b.org", "pls remove my email address"),
    ],
)
def test_what_is_deleted_may_be_named_otherwise_than_it_was_said(
    kernel: MemOS, ada: str, said: str, words: str
) -> None:
    mine = kernel.within(ada)
    others = ["my rent is 800 a month", "my boss pays me late every month", "my job is nurse", "i love jazz"]
    for other in others:
        mine.add([{"role": "user", "content": other}])
    mine.add([{"role": "user", "content": said}])
    reply = mine.chat(words)
    assert reply.forgotten or "Is it this one?" in reply.text or "Which of these" in reply.text
    named = [line for line in reply.text.split("\n") if said.rstrip(".") in line]
    assert named, reply.text
    assert {c.text.removeprefix("User: ").rstrip(".") for c in mine.memories()} >= set(others)


def test_what_no_memory_states_is_asked_back_with_what_is_near(kernel: MemOS, ada: str) -> None:
    [kept] = kernel.within(ada).add("we got a rise at work, 60k now for the whole team")
    reply = kernel.within(ada).chat("forget my salary")
    assert not reply.forgotten and kept.id in reply.text


@pytest.mark.parametrize("door", ["add", "chat"])
@pytest.mark.parametrize(
    "was, now",
    [
        ("i've got a fiesta called gerald", "i sold gerald"),
        ("my car is called gerald, a ford fiesta", "i got rid of gerald"),
        ("remember that i live in oslo", "i moved to rome"),
        ("i work at greggs", "i quit greggs"),
    ],
)
def test_who_writes_without_capitals_is_read_so_at_every_door(
    kernel: MemOS, ada: str, door: str, was: str, now: str
) -> None:
    mine = kernel.within(ada)
    for text in (was, now):
        _ = mine.chat(text) if door == "chat" else mine.add([{"role": "user", "content": text}])
    assert [c.text for c in mine.memories()] == [f"User: {now}."]


SAID = {"2026-05-20": "we got a new project", "2026-06-15": "work is stressful", "2026-07-03": "i adopted a cat"}


@pytest.mark.parametrize(
    "words, days",
    [
        ("list everything since june", [1, 2]),
        ("What do you know about me since June?", [1, 2]),
        ("list my memories from june", [1]),
        ("show my memories before june", [0]),
        ("list everything after june", [2]),
        ("what's new since june?", [1, 2]),
        ("search my notes about work since june", [1]),
    ],
)
def test_a_list_or_a_search_is_of_what_was_said_in_the_time_it_names(
    kernel: MemOS, ada: str, words: str, days: list[int], later: Callable[[timedelta], None]
) -> None:
    mine = kernel.within(ada)
    later(datetime(2026, 8, 20, tzinfo=timezone.utc) - datetime.now(timezone.utc))
    texts = list(SAID.values())
    mine.add([{"role": "user", "content": text, "time": f"{day}T10:00:00Z"} for day, text in SAID.items()])
    reply = mine.chat(words)
    assert [op.intent for op in reply.operations] != ["remember"] and not reply.remembered
    shown = reply.text + " ".join(hit.cube.text for hit in mine.search(words) if "search" in words)
    assert {n for n, text in enumerate(texts) if text in shown} >= set(days)
    left_out = set(range(3)) - set(days) - ({2} if "search" in words else set())
    assert not any(texts[n] in shown for n in left_out)


def test_a_time_that_is_asked_about_limits_nothing(kernel: MemOS, ada: str) -> None:
    mine = kernel.within(ada)
    mine.add([{"role": "user", "content": "i will move to leeds in june", "time": "2026-05-20T10:00:00Z"}])
    assert mine.search("Where have I lived since June?")
    assert mine.search("What did I say about Leeds since June 2027?")  # which is no such time


def test_a_question_that_the_model_cannot_read_is_answered_with_quotes(kernel: MemOS, ada: str) -> None:
    kernel.within(ada).add([{"role": "user", "content": "我的房东姓王"}])
    assert "我的房东姓王" in kernel.within(ada).chat("你记得我的房东什么").text
    with pytest.raises(UnsupportedLanguage):
        kernel.within(ada).ask("你记得我的房东什么")


def test_what_asks_not_to_be_kept_is_not_kept_from_before_either(kernel: MemOS, ada: str) -> None:
    for calls in (kernel.within(ada), kernel.within(ada)):
        calls.add("I like tea.")
        calls.add([{"role": "user", "content": "I like jazz."}])
    assert kernel.within(ada).chat("Don't remember that I like jazz.").forgotten
    kernel.within(ada).add([{"role": "user", "content": "my pin is 1234"}])
    kernel.within(ada).add([{"speaker": "Bo", "content": "I like pie."}])
    assert kernel.within(ada).add([{"role": "user", "content": "please don't save that"}]) == []
    assert [c.text for c in kernel.within(ada).memories()] == ["I like tea.", "Bo: I like pie."]


@pytest.mark.parametrize(
    "words",
    [
        "My password is hunter2, don't save that.",
        "Don't remember that I like jazz.",
        "我的密码是 8812，别记下来",
        "别记这个 我昨天跟老板吵架了",
        "这个不用记 我心情不好",
    ],
)
def test_what_asks_not_to_be_kept_is_not_kept_by_any_call(kernel: MemOS, ada: str, words: str) -> None:
    calls = kernel.within(ada)
    assert calls.chat(words).text == ("Not kept, as you asked." if words.isascii() else "好的，没有记下。")
    assert calls.add(words) == []
    turns = [{"role": "user", "content": words}, {"role": "assistant", "content": "Fine."}]
    assert [c.header.role for c in calls.add(turns)] == ["assistant"]
    calls.tick()
    assert [c.header.role for c in calls.memories()] == ["assistant"]


def test_a_day_that_is_told_from_today_is_kept_with_its_date(kernel: MemOS, ada: str) -> None:
    [kept] = kernel.within(ada).chat("Remember that I met Ana yesterday.").remembered
    yesterday = (kernel.vault.now().astimezone() - timedelta(days=1)).date()
    assert kept.text == f"User: I met Ana yesterday ({yesterday})."
    [kept] = kernel.within(ada).chat("Remember that I met Ana on 6 March 2020.").remembered
    assert "(" not in kept.text


def test_a_rollback_goes_back_and_forth(kernel: MemOS, ada: str) -> None:
    [cube] = kernel.within(ada).add("I live in Oslo.")
    kernel.within(ada).update(cube.id, "I live in Bergen.")
    reply = kernel.within(ada).chat("Roll back where I live to version 1.")
    assert "Oslo" in kernel.within(ada).get(cube.id).text
    kernel.within(ada).undo(reply.pipeline)
    assert "Bergen" in kernel.within(ada).get(cube.id).text


def test_a_rollback_goes_back_to_what_a_day_ended_with(kernel: MemOS, ada: str) -> None:
    [cube] = kernel.within(ada).add("I live in Oslo.")
    kernel.within(ada).update(cube.id, "I live in Bergen.")
    where = Conversation(Caller(Namespace(user_id=ada)))
    today = kernel.vault.now().date()
    kernel.services.pipelines.run([Asked(intent="rollback", what="where I live", to=str(today))], where, {})
    assert "Bergen" in kernel.within(ada).get(cube.id).text
    before = Asked(intent="rollback", what="where I live", to=str(today - timedelta(days=1)))
    with pytest.raises(NotFound, match="was not there on"):
        kernel.services.pipelines.run([before], where, {})


def test_the_memory_tells_of_itself(kernel: MemOS, ada: str) -> None:
    kernel.within(ada).add("My locker code is 4711.")
    assert kernel.within(ada).chat("How many memories have you got?").text == "1 memory."
    assert "4711" in kernel.within(ada).chat("What do you know about me?").text
    assert "plaintext" in kernel.within(ada).chat("How much room is left?").text
    assert kernel.within(ada).chat("What are you working on right now?").text == "No job is going on."


def test_what_was_told_in_a_session_is_read_with_what_follows(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in ("my son leo is nine", "where is leo?", "my sister anna is a vet", "she moved to york"):
            memos.chat(text, session="one")
        [moved] = [cube for cube in memos.memories() if "york" in cube.text and cube.header.kind == "note"]
        assert "anna moved to york" in moved.text.casefold()
        memos.chat("she moved to hull", session="two")
        assert any("she moved to hull" in cube.text for cube in memos.memories())  # nobody was spoken of there
        memos.chat("forget that my sister anna is a vet", session="one")
        memos.chat("she has a dog", session="one")
        assert not any("anna has a dog" in cube.text.casefold() for cube in memos.memories())


@pytest.mark.parametrize(
    ("told", "right", "now", "before"),
    [
        ("my rent is 4800", "no, it's 5200", "my rent is 5200", "4800"),
        ("the plumber comes at 9 on friday", "sorry i meant 10", "the plumber comes at 10 on friday", "at 9"),
        ("flight is on 3 march", "no 4 march", "flight is on 4 march", "3 march"),
        ("my dentist is dr wu", "no, dr patel", "my dentist is dr patel", "wu"),
        ("手机号是13800001111", "不是，是13800002222", "手机号是13800002222", "1111"),
    ],
)
def test_what_was_said_last_is_put_right_by_a_word(
    tmp_path: Path, told: str, right: str, now: str, before: str
) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat(told, session="one")
        reply = memos.chat(right, session="one")
        texts = [cube.text for cube in memos.memories()]
        assert any(now in text for text in texts) and not any(before in text for text in texts)
        memos.undo(reply.pipeline)
        memos.tick()
        texts = [cube.text for cube in memos.memories()]
        assert any(told in text for text in texts) and not any(now in text for text in texts)


@pytest.mark.parametrize("words", ["no, it's fine", "no that's wrong", "sorry i meant 10"])
def test_what_puts_nothing_right_changes_nothing(tmp_path: Path, words: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in ("i work at aldi", words):
            memos.chat(text, session="one")
        assert any("i work at aldi" in cube.text for cube in memos.memories())


def test_turns_that_were_carried_out_are_read_and_not_shown_to_the_model(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        turns: list[dict[str, str]] = []
        for text in ("my sister anna is a vet", "she moved to york"):
            reply = memos.chat(text, turns=turns)
            kinds = [{"role": "user", "content": text}, {"role": "assistant", "content": reply.text}]
            turns += [turn | {"kind": NOTED} for turn in kinds]
        assert any("anna moved to york" in cube.text.casefold() for cube in memos.memories())
        few, many = (memos.chat("where does anna live?", turns=some).prompt_tokens for some in ((), turns))
        assert few == many


def test_an_undo_after_a_question_back_takes_nothing_that_was_told(kernel: MemOS, ada: str) -> None:
    within = kernel.within(ada)
    for text in ("I lent Franz 300 euros", "Franz has my ladder", "the plate is G 417 KL"):
        within.chat(text)
    assert not within.chat("forget the loan").forgotten
    assert within.chat("undo that").text == "Nothing was done, so there is nothing to undo."
    assert any("417" in cube.text for cube in within.memories())
    assert within.chat("undo that").text.startswith("Undone")


@pytest.mark.parametrize(
    ("told", "order", "left", "gone"),
    [
        (
            "Callum is allergic to penicillin and he hates mushrooms",
            "forget what i said about the mushrooms, he eats them now",
            "allergic to penicillin",
            "mushrooms",
        ),
        (
            "The doc has me on lisinopril in the morning and a statin at bedtime",
            "delete that about the statin, he took me off it",
            "lisinopril in the morning",
            "statin",
        ),
        (
            "we moved house last week, my new address is 5 Elm Street, Leeds",
            "forget my new address",
            "We moved house last week",
            "Leeds",
        ),
    ],
)
def test_what_was_told_beside_what_is_forgotten_is_kept_and_all_of_it_comes_back(
    tmp_path: Path, told: str, order: str, left: str, gone: str
) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat(told, session="one")
        reply = memos.chat(order, session="one")
        texts = " ".join(cube.text for cube in memos.memories())
        assert left in texts and gone not in texts and gone in reply.text
        memos.chat("undo that", session="one")
        [cube] = [cube for cube in memos.memories() if not cube.sources]
        assert told.casefold() in cube.text.casefold()


def test_what_is_told_first_is_not_taken_from_the_rest(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat("my pin is 1234 and it is for the blue card", session="one")
        memos.chat("forget my pin", session="one")
        assert not memos.memories()


@pytest.mark.parametrize(
    ("told", "order", "now"),
    [
        ("the dock fee of $340 is due May 1st", "Change the dock fee to $365", "dock fee of $365 is due May 1st"),
        ("房租一个月4200,押一付三", "把房租改成4500,房东刚跟我说涨价了", "房租一个月4500,押一付三，房东刚跟我说涨价了"),
        ("房租一个月4200,押一付三", "房租现在是4500不是4200", "房租一个月4500,押一付三"),
    ],
)
def test_what_is_named_is_changed_where_it_stands_in_a_later_session_too(
    tmp_path: Path, told: str, order: str, now: str
) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat(told, session="one")
        reply = memos.chat(order, session="two")
        [cube] = [cube for cube in memos.memories() if not cube.sources]
        assert now in cube.text
        memos.undo(reply.pipeline)
        [cube] = [cube for cube in memos.memories() if not cube.sources]
        assert told.casefold() in cube.text.casefold()


@pytest.mark.parametrize("asked", ["How many people are coming?", "我有說過肩膀痛嗎"])
def test_a_question_after_a_list_of_things_told_is_one(tmp_path: Path, asked: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in (
            "Remind me the dock fee of $340 is due May 1st",
            "芭樂被鳥啄了好幾顆",
            "change the dock fee to $365",
        ):
            memos.chat(text, session="one")
        assert [one.intent for one in memos.chat(asked, session="one").operations] == ["recall"]


def test_what_another_one_shares_is_not_changed_in_place(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        [fee] = memos.within("bob").chat("the dock fee of $340 is due May 1st").remembered
        memos.within("bob").grant(fee.id, "eve", "editor")
        memos.within("eve").chat("change the dock fee to $365")
        assert "$340" in memos.within("bob").get(fee.id).text
        own = [cube for cube in memos.within("eve").memories() if cube.rights.owner == "eve" and not cube.sources]
        assert [cube.text for cube in own] == ["User: the dock fee is now $365."]


def test_a_sentence_of_its_own_takes_no_place_in_what_was_told_before(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        told = ("actually we decided against the trip to Rome", "no the neighbours are called Patel")
        for text in (*told, "sorry i was away on friday, my mum was ill"):
            memos.chat(text, session="one")
        texts = [cube.text for cube in memos.memories() if not cube.sources]
        assert len(texts) == 3 and all(any(word in text for text in texts) for word in ("Rome", "Patel", "my mum"))


def test_what_could_stand_in_two_memories_is_kept_beside_both(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        for text in ("the dock fee is $340", "Gene pays a dock fee of $120"):
            memos.chat(text, session="one")
        memos.chat("change the dock fee to $365", session="two")
        texts = " ".join(cube.text for cube in memos.memories())
        assert all(fee in texts for fee in ("$340", "$120", "$365"))


@pytest.mark.parametrize(
    "told",
    [
        "ok so my supervisor is dr. Helen Whitcombe, she wants the stability data by 14 march",
        "luc moved out on sunday and a new girl Mei is taking his room from monday",
        "so far 43 said yes and Cousin Ray said no because of his hip",
        "老板今天又改需求了,会员体系那个版本要提前到11月20号上线,烦死",
        "flour comes from Odlums on mondays and thursdays, the rep is Siobhan Keane, 087 555 0192",
    ],
)
def test_what_only_tells_is_no_order_and_is_kept_whole(tmp_path: Path, told: str) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.chat("hey! im ananya, doing my phd at monash, 2nd year", session="one")
        reply = memos.chat(told, session="one")
        [cube] = [cube for cube in reply.remembered if not cube.sources]
        assert told.rstrip(".").casefold() in cube.text.casefold()
