"""The tools of a client of OpenAI's API: what the model is told of them, what it is held to, what it has called.

Knows the forms of requests and answers; knows no model.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memos.config import DecodeConfig
from memos.errors import InputError, meant
from memos.plugins.openai.wire import AssistantMessage, CalledFunction, ChatRequest, MessageToolCall
from memos.plugins.tool_step import Schema, Tool, bounded_parameters, instructions, read_step, step_schema

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class ClientTools:
    """Those that one request lets the model call. answers: it may answer instead."""

    tools: tuple[Tool, ...]
    answers: bool

    @classmethod
    def of(cls, asked: ChatRequest) -> ClientTools | None:
        """None where nothing may be called. Raises InputError for a form that cannot be honoured, by its name."""
        if not asked.calls_tools:
            if asked.tool_choice not in (None, "none", "auto"):
                raise InputError(f"tool_choice={asked.tool_choice!r:.80} has no tools to choose from; give tools")
            return None
        beside = {"response_format": asked.schema_of_answer, "stop": asked.stops, "session": asked.session}
        for name, given in beside.items():
            if given:
                raise InputError(f"{name} cannot be honoured beside tools; leave {name} out, or tools")
        tools = tuple(_tool(n, one) for n, one in enumerate(asked.tools or ()))
        names = [tool.name for tool in tools]
        if len(set(names)) < len(names):
            raise InputError(f"tools has two of one name: {', '.join(names):.200}; give each another")
        match asked.tool_choice:
            case None | "auto":
                return cls(tools, answers=True)
            case "required":
                return cls(tools, answers=False)
            case {"type": "function", "function": {"name": str(name)}}:
                if name not in names:
                    raise InputError(
                        f"tool_choice names no tool {name!r:.60}; {meant(name, names, f'there are {names}')}"
                    )
                return cls(tuple(tool for tool in tools if tool.name == name), answers=False)
            case other:
                raise InputError(
                    f"tool_choice={other!r:.80} is not supported; give none, auto, required, or one function"
                )

    @property
    def schema(self) -> Schema:
        return step_schema(self.tools, self.answers)

    def instructed(self, turns: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        """The messages before the last one, with what the model is told of the tools behind the client's own words."""
        first, rest = (turns[:1], turns[1:]) if turns and turns[0]["role"] == "system" else ([], turns)
        told = "\n".join((*(turn["content"] for turn in first), instructions(self.tools)))
        return [{"role": "system", "content": told}, *rest]

    def decode(self, given: DecodeConfig, longest: int | None, most: int, room: float) -> DecodeConfig:
        """longest: tokens that the request allows; most: those of the longest step; room: left in the context."""
        tokens = longest or max(given.max_new_tokens, int(min(most, room)))
        held = {"json_schema": dict(self.schema), "max_new_tokens": tokens, "beams": 1}
        return given.model_copy(update=held)

    def message(self, written: str) -> tuple[AssistantMessage, Finish]:
        """What the model has written, as the client reads it; of a call that was cut, nothing."""
        step = read_step(written, self.tools)
        if not step.whole or not step.tool:
            return AssistantMessage(content=step.answer), "stop" if step.whole else "length"
        function = CalledFunction(name=step.tool, arguments=json.dumps(step.arguments, ensure_ascii=False))
        call = MessageToolCall(id=f"call_{uuid.uuid4().hex}", function=function)
        return AssistantMessage(content=None, tool_calls=[call]), "tool_calls"


def _tool(n: int, given: dict[str, object]) -> Tool:
    match given:
        case {"type": "function", "function": {"name": str(name), **function}} if name:
            parameters, about = function.get("parameters") or {}, function.get("description") or ""
            if not isinstance(parameters, dict):
                raise InputError(f"tools[{n}].function.parameters is no JSON Schema; give an object, or leave it out")
            return Tool(name, str(about), bounded_parameters(parameters, f"tools[{n}].{name}"))
        case _:
            raise InputError(
                f"tools[{n}]={given!r:.80} is not supported; give type function, and a function with a name"
            )
