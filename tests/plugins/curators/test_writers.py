"""Writers: the local model held to a schema, an endpoint, and the rule where either fails; every call is counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from talk import conversation

from memos.config import CuratorsConfig
from memos.errors import ConfigError, InputError
from memos.infrastructure.host.model.constrained import max_answer_tokens
from memos.plugins.chat_endpoint import ChatEndpoint
from memos.plugins.curators.curator import Writing
from memos.plugins.curators.writers import CountedWriter, Endpoint, bounded, model_of
from tests.chat_server import Said, chat_server


class Detail(BaseModel):
    title: Annotated[str, Field(max_length=20)]
    rating: Annotated[int, Field(ge=1, le=3)]


class Answer(BaseModel):
    kind: Literal["ADD", "NOOP"]
    details: Annotated[list[Detail], Field(max_length=2)]


RULE = Answer(kind="NOOP", details=[])
WRITING = Writing("decide", "What now?", Answer, lambda: RULE)


def test_a_schema_is_written_out_for_the_decoding() -> None:
    form = bounded(Answer)
    detail = {
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 20}, "rating": {"enum": [1, 2, 3]}},
        "required": ["title", "rating"],
        "additionalProperties": False,
    }
    assert form["properties"] == {
        "kind": {"enum": ["ADD", "NOOP"], "type": "string"},
        "details": {"type": "array", "maxItems": 2, "items": detail},
    }
    assert max_answer_tokens(form) > 0


class Replies:
    """A model that answers what it is told to."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)

    def answer(self, prompts: object, schema: object) -> list[tuple[str, int]]:
        return [(self._answers.pop(0), 7)]


def test_nonsense_is_written_by_the_rule_and_after_three_the_run_goes_on_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    right = RULE.model_copy(update={"kind": "ADD"}).model_dump_json()
    writer = CountedWriter(Replies("no", right, "{}", '{"kind": "ADD"}', "[]", right), "mine", 10)
    with caplog.at_level(logging.WARNING, "memos"):
        kinds = [writer.fill(WRITING).kind for _ in range(6)]
    assert kinds == ["NOOP", "ADD", "NOOP", "NOOP", "NOOP", "NOOP"]
    assert not writer.is_model and (writer.cost.calls, writer.cost.failed) == (6, 4)
    assert writer.cost.tokens == 5 * 7 + len(WRITING.ask) // 4  # the last was not asked
    assert "the rule writes instead" in caplog.text


def test_a_run_has_so_many_calls() -> None:
    writer = CountedWriter(None, "mine", 2)
    writer.fill_all([WRITING, WRITING])
    with pytest.raises(InputError, match=r"calls its writer too often in one run \(curators.calls\)"):
        writer.fill(WRITING)


def test_an_endpoint_is_asked_with_the_schema() -> None:
    added = Said(RULE.model_copy(update={"kind": "ADD"}).model_dump_json())
    with chat_server(lambda n, request: added) as (url, asked):
        writer = CountedWriter(Endpoint(ChatEndpoint(url, "m", "NO_SUCH_KEY", 5)), "mine", 10)
        assert writer.fill(WRITING).kind == "ADD" and writer.cost.tokens == 12
    assert asked[0]["model"] == "m" and "json_schema" in str(asked[0]["response_format"])


def test_an_endpoint_that_does_not_answer_is_named(caplog: pytest.LogCaptureFixture) -> None:
    writer = CountedWriter(Endpoint(ChatEndpoint("http://127.0.0.1:1/v1", "m", "NO_SUCH_KEY", 5)), "mine", 10)
    with caplog.at_level(logging.WARNING, "memos"):
        assert writer.fill(WRITING) == RULE
    assert "(curators.writer); start it" in caplog.text and writer.cost.failed == 1


def test_a_writer_that_is_none_is_refused_by_name() -> None:
    assert model_of(CuratorsConfig(), lambda: pytest.fail("no model is needed")) is None
    with pytest.raises((ConfigError, ValueError), match="writer"):
        CuratorsConfig(writer="gpt")


def test_the_packaged_model_writes_what_parses_and_no_turn_is_lost(tmp_path: Path) -> None:
    with conversation(tmp_path, "mem0", curators={"writer": "local"}, decode={"max_new_tokens": 64}) as talk:
        lines = ["Ann: I work as a nurse in Leeds.", "Bo: What a day!", "Ann: 我住在北京。", "Bo: " + "very " * 400]
        talk.say(*lines)
        cost = talk.calls.writer_cost("mem0")
        assert cost.calls > 0 and cost.tokens > 0 and cost.failed == 0
        there = [getattr(cube.payload, "verbatim", "") for cube in talk.kernel.memories()]
        assert all(line.split(": ", 1)[1].strip() in (one.strip() for one in there) for line in lines)
