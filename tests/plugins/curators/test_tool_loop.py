"""The tool loop: what its tools do to a vault, what they may not, and how a conversation ends that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from talk import Conversation, conversation
from typer.testing import CliRunner

from memos.cube import Trust
from memos.errors import InputError, MemosError
from memos.interface.doors.cli.app import app
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.curators.tool_loop import BLOCK_CHARS, MAX_STEPS, TOOL_LOOP, Ended, ToolTalk
from memos.plugins.curators.writers import Messages, Schema


class ScriptedModel:
    """Writes what it is told to, and notes what it was shown."""

    def __init__(self, *steps: object, share: float = 0.0) -> None:
        self._steps, self._share = list(steps), share
        self.shown = list[Messages]()
        self.offered = list[Schema]()

    def reply(self, messages: Messages, schema: Schema) -> tuple[str, int]:
        self.shown.append(list(messages))
        self.offered.append(schema)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, MemosError):
            raise step
        return step if isinstance(step, str) else json.dumps(step), 5

    def share_of_context(self, messages: Messages) -> float:
        return self._share


def calls(tool: str, **arguments: str) -> dict[str, object]:
    return {"tool": tool, "arguments": arguments}


def answer(text: str) -> dict[str, object]:
    return {"answer": text}


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[Conversation]:
    with conversation(tmp_path, "memos") as talk:
        talk.system = TOOL_LOOP
        yield talk


def says(ann: Conversation, message: str, *steps: object, share: float = 0.0) -> tuple[ToolTalk, ScriptedModel]:
    model = ScriptedModel(*steps, share=share)
    ann.memory.kernel.services.of_plugin("curators")._model = model  # type: ignore[attr-defined]
    return ann.calls.converse(message), model


def test_what_is_kept_is_seen_from_then_on_found_and_goes_with_its_turn(ann: Conversation) -> None:
    append = calls("core_append", block="human", text="lives in Oslo")
    insert = calls("archival_insert", text="Ann plays the violin")
    done, _ = says(ann, "I moved to Oslo.", append, insert, answer("Nice!"))
    assert (done.text, done.ended, [use.tool for use in done.calls]) == (
        "Nice!", Ended.ANSWERED, ["core_append", "archival_insert"]
    )  # fmt: skip
    assert [(c.header.kind, c.text, c.header.trust) for c in ann.made()] == [
        ("core", "lives in Oslo", Trust.MODEL),
        ("archival", "Ann plays the violin", Trust.MODEL),
    ]
    search = calls("archival_search", query="violin"), calls("recall_search", query="Oslo")
    done, model = says(ann, "What do I play?", *search, answer("The violin."))
    assert "lives in Oslo" in model.shown[0][0]["content"]
    assert ["Ann plays the violin" in done.calls[0].result, "I moved to Oslo" in done.calls[1].result] == [True, True]
    assert model.shown[-1][-1]["content"] == f"<result>\n{done.calls[1].result}\n</result>"
    assert "What do I play" not in done.calls[1].result  # it stands there
    ann.kernel.delete(ann.made("core")[0].sources[0].id)
    assert ann.made() == []


def test_a_message_that_is_said_again_is_no_less_remembered(ann: Conversation) -> None:
    for message in ("I moved to Oslo.", "Where do I live?"):
        for n in range(2):
            says(ann, message, calls("archival_insert", text=f"{message} {n}"), answer("Well."))
    assert len(ann.texts("archival")) == 4


def test_each_call_that_changes_something_is_undone_by_its_run(ann: Conversation) -> None:
    says(ann, "I moved to Oslo.", calls("core_append", block="human", text="lives in Oslo"), answer("Nice!"))
    replace = calls("core_replace", block="human", old="Oslo", new="Rome")
    done, _ = says(ann, "To Rome now.", replace, answer("Noted."))
    assert ann.texts() == ["lives in Rome"]
    assert {run.hook: run.system for run in ann.calls.curations()} == dict.fromkeys(
        ("core_replace", "core_append"), TOOL_LOOP
    )
    ann.calls.undo_curation(done.calls[0].run)
    assert ann.texts() == ["lives in Oslo"]
    says(ann, "Forget that.", calls("core_replace", block="human", old="lives in Oslo", new=""), answer("Done."))
    assert ann.texts() == []
    assert ann.calls.writer_cost(TOOL_LOOP).calls == 6


def test_a_block_has_its_length_and_what_cannot_be_done_is_told_to_the_model(ann: Conversation) -> None:
    long = "x" * (BLOCK_CHARS // 2)
    done, _ = says(
        ann,
        "Hello there.",
        calls("core_append", block="human", text=long),
        calls("core_append", block="human", text=long + "y"),
        calls("core_replace", block="persona", old="cold", new="warm"),
        calls("core_append", block="nobody", text="x"),
        calls("archival_insert", text=" "),
        answer("Hello."),
    )
    assert ann.texts() == [long] and done.ended is Ended.ANSWERED
    told = [use.result for use in done.calls[1:]]
    assert all(one.startswith("error: ") and not use.run for one, use in zip(told, done.calls[1:], strict=True))
    for words, one in zip(("do not fit", "does not say 'cold'", "does not take", "empty text"), told, strict=True):
        assert words in one


def test_tools_reach_no_further_than_their_caller(ann: Conversation) -> None:
    says(ann, "I moved to Oslo.", calls("core_append", block="human", text="Ann lives in Oslo"), answer("Nice!"))
    theirs = ann.made()[0]
    bob = CuratorCalls.of(ann.memory.kernel.within("bob"))
    script = [
        calls("core_replace", block="human", old="Oslo", new="Rome"),
        calls("archival_search", query="Oslo"),
        calls("recall_search", query="Oslo"),
        answer("Well."),
    ]
    for granted in (False, True):  # reading is no writing, and another's core memory is not one's own
        if granted:
            ann.kernel.grant("namespace:ann", "bob", "reader")
        model = ScriptedModel(*script)
        ann.memory.kernel.services.of_plugin("curators")._model = model  # type: ignore[attr-defined]
        done = bob.converse(f"Where is Ann, {granted}?")
        assert "does not say 'Oslo'" in done.calls[0].result
        assert ("Oslo" in done.calls[2].result) is granted
        assert "Ann lives" not in model.shown[0][0]["content"]
    assert ann.kernel.get(theirs.id).text == "Ann lives in Oslo" and len(bob.curations()) == 0


def test_what_asks_not_to_be_kept_leaves_only_tools_that_read(ann: Conversation) -> None:
    _, model = says(ann, "Don't save this: I like tea.", calls("core_append", block="human", text="tea"), answer("Ok."))
    assert "core_append" not in json.dumps(model.offered[0]) and ann.kernel.memories() == []


@pytest.mark.parametrize(
    "steps, ended, text, asked",
    [
        ([calls("recall_search", query="Oslo")] * 2 + [answer("So.")], Ended.REPEATS, "So.", 3),
        ([calls("recal_search", query="Oslo")], Ended.NONSENSE, "", 3),
        (["Sure!"], Ended.NONSENSE, "", 3),
        ([calls("recall_search", query="Oslo"), ""], Ended.CONTEXT, "I moved to Oslo.", 2),
        ([calls("recall_search", query="Oslo"), MemosError("gone")], Ended.FAILED, "I moved to Oslo.", 2),
        ([answer(""), answer("Now.")], Ended.ANSWERED, "Now.", 2),
        ([*(calls("recall_search", query=f"{n}") for n in range(MAX_STEPS - 1)), answer("So.")], Ended.STEPS, "So.", 8),
        ([calls("recall_search", query=f"{n}") for n in range(MAX_STEPS)], Ended.STEPS, "I moved to Oslo.", 8),
    ],
)
def test_a_model_that_goes_wrong_is_ended_with_what_there_is(
    ann: Conversation, steps: Sequence[object], ended: Ended, text: str, asked: int
) -> None:
    ann.kernel.add([{"role": "user", "content": "I moved to Oslo."}])
    done, model = says(ann, "Where am I?", *steps)
    assert (done.ended, len(model.shown)) == (ended, asked)
    assert text in done.text and bool(text) == bool(done.text)
    if ended in (Ended.STEPS, Ended.REPEATS):  # the last may only answer
        assert len(model.offered[-1]["anyOf"]) == 1 < len(model.offered[0]["anyOf"])  # type: ignore[arg-type]


def test_a_model_that_fails_at_once_and_an_empty_message_are_raised(ann: Conversation) -> None:
    with pytest.raises(MemosError, match="gone"):
        says(ann, "Where am I?", MemosError("gone"))
    with pytest.raises(InputError, match="say something"):
        ann.calls.converse("  ")


def test_pressure_is_told_once_from_a_share_of_the_context_on(ann: Conversation) -> None:
    for share, warned in ((0.69, 0), (0.7, 1)):
        search = [calls("recall_search", query=f"{n}") for n in range(3)]
        _, model = says(ann, f"Where am I at {share}?", *search, answer("Here."), share=share)
        assert sum("fills most of your context" in message["content"] for message in model.shown[-1]) == warned


def test_the_packaged_model_writes_steps_that_can_all_be_read(tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    with conversation(tmp_path, "memos", curators={"calls": 2}) as talk:
        before = [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "Nice!"}]
        done = talk.calls.converse("我住在北京。", turns=before)
        assert done.text and done.ended in (Ended.ANSWERED, Ended.STEPS) and len(done.calls) <= 1
        cost = talk.calls.writer_cost(TOOL_LOOP)
        assert cost.calls > 0 and cost.tokens > 0 and cost.failed == 0


def test_one_message_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    talk = ["curators", "talk", "Hi!", "--vault", str(tmp_path / "new"), "--set", "curators.calls=1", "--json"]
    ran = CliRunner().invoke(app, talk)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["text"] and (told["ended"], told["calls"]) == ("it had no steps left", [])
