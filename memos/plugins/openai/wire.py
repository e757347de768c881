"""The requests and answers of OpenAI's API, as far as memos can honour them.

A field that changes an answer and cannot be honoured is refused by name, as is an unknown one; one that changes none is
ignored.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memos.config import DecodeConfig
from memos.errors import meant
from memos.plugins.tool_step import fenced

# about the answer's way, its price and its whereabouts, not about the answer
_IGNORED_FIELDS = frozenset(
    """user metadata safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options service_tier
    prediction parallel_tool_calls""".split()
)
# values that ask for nothing; any other of these would change the answer
_REFUSED_UNLESS: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "store": (False,),
}


class WireModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class OpenAIRequest(WireModel):
    @model_validator(mode="after")
    def _can_be_honoured(self) -> OpenAIRequest:
        for name, value in (self.model_extra or {}).items():
            if value is None or name in _IGNORED_FIELDS:
                continue
            if name not in _REFUSED_UNLESS:
                raise ValueError(f"{name:.60} is unknown; {meant(name, type(self).model_fields, 'leave it out')}")
            if value not in _REFUSED_UNLESS[name]:
                raise ValueError(f"{name}={value!r:.60} is not supported; leave {name} out")
        return self


def _several(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


class StreamOptions(WireModel):
    include_usage: bool = False


class PlainText(WireModel):
    type: Literal["text"]


class JsonObject(WireModel):
    type: Literal["json_object"]


class NamedSchema(WireModel):
    """strict: an answer follows the schema in any case."""

    name: str
    schema_: dict[str, object] = Field(alias="schema")
    strict: bool | None = None


class JsonSchema(WireModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class AnswerRequest(OpenAIRequest):
    """What a request for an answer says beside the messages. memory, session: of memos alone."""

    model: str = Field("", description="any: the model that is loaded answers, and the answer names it")
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: str | list[str] | None = None
    response_format: PlainText | JsonObject | JsonSchema | None = Field(
        None,
        discriminator="type",
        description="JSON: the last message is answered in it, and nothing else is done about it: it is not remembered",
    )
    memory: bool = Field(True, description="false: nothing that is remembered is used, and nothing is remembered")
    session: str | None = Field(None, description="name of a conversation that memos keeps, in place of earlier turns")

    @model_validator(mode="after")
    def _agrees(self) -> AnswerRequest:
        if self.stream_options and not self.stream:
            raise ValueError("stream_options are for a stream; leave them out, or set stream to true")
        if "" in self.stops:
            raise ValueError("stop has an empty text, which every answer begins with; leave it out")
        return self

    @property
    def stops(self) -> list[str]:
        return _several(self.stop or [])

    @property
    def schema_of_answer(self) -> dict[str, object] | None:
        match self.response_format:
            case JsonSchema(json_schema=named):
                return named.schema_
            case JsonObject():
                return {"type": "object"}
            case _:
                return None

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def is_carried_out(self) -> bool:
        """The last message may be one to remember, or an order; else it is answered, and nothing is done."""
        return self.memory and self.schema_of_answer is None

    def decode(self, default: DecodeConfig) -> DecodeConfig:
        """How the answer is decoded, where the request says so."""
        given = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "stop": tuple(self.stops) or None,
            "json_schema": self.schema_of_answer,
            "beams": 1 if self.temperature or self.schema_of_answer else None,
        }
        return default.model_copy(update={name: value for name, value in given.items() if value is not None})


class Part(WireModel):
    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    """arguments: JSON."""

    name: str
    arguments: str


class MessageToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(WireModel):
    """tool_calls: of the assistant's; tool_call_id: of a tool's, the call whose result it is."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if (self.model_extra or {}).get("function_call"):
            raise ValueError("function_call of a message is nothing that this server reads; give tool_calls")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of {self.role} has tool_calls, which are the assistant's; leave them out")
        if self.content is None and not self.tool_calls:
            raise ValueError(f"a message of {self.role} has no content; give a text")
        return self

    @property
    def text(self) -> str:
        """As the model reads it: calls as it writes them itself, and what a tool gave in a fence."""
        said = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content or ())
        if self.role == "tool":
            return fenced(said)
        calls = (f'{{"tool": {json.dumps(c.function.name)}, "arguments": {c.function.arguments}}}' for c in self.called)
        return "\n".join(filter(None, (said, *calls)))

    @property
    def called(self) -> list[MessageToolCall]:
        return self.tool_calls or []


class ChatRequest(AnswerRequest):
    messages: list[Message] = Field(
        min_length=1,
        description="the last one is of the user, and is read by memos; or of tools that were called for it",
    )
    tools: list[dict[str, object]] | None = Field(
        None, description="functions that the model may call: the last message is answered, and nothing else is done"
    )
    tool_choice: str | dict[str, object] | None = None
    max_completion_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _ends_with_the_user(self) -> ChatRequest:
        if self.messages[-1].role not in ("user", "tool") or not any(m.role == "user" for m in self.messages):
            raise ValueError(
                f"the last message is of {self.messages[-1].role}; end with one of the user, to be answered, or with "
                "what the tools gave that were called for it"
            )
        known = set[str | None]()
        for message in self.messages:
            if message.role == "tool" and message.tool_call_id not in known:
                raise ValueError(f"no message before it calls what tool_call_id={message.tool_call_id!r:.60} names")
            known.update(call.id for call in message.called)
        return self

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def is_carried_out(self) -> bool:
        return super().is_carried_out and not self.calls_tools and self.messages[-1].role == "user"

    @property
    def _asked_at(self) -> int:
        return max(n for n, message in enumerate(self.messages) if message.role == "user")

    @property
    def messages_asked(self) -> list[str]:
        """What the user said last, with what the tools gave that were called for it."""
        return ["\n".join(m.text for m in self.messages[self._asked_at :] if m.role not in ("system", "developer"))]

    def turns(self) -> list[dict[str, str]]:
        """The messages before the last one of the user; all instructions as one, at the beginning, where templates take
        them. What tools gave is told to the model as a user's message, as few templates know them."""
        turns = list[dict[str, str]]()
        for message in self.messages[: self._asked_at]:
            if message.role == "tool" and turns[-1]["role"] == "user":  # of several calls
                turns[-1]["content"] += f"\n{message.text}"
            elif message.role not in ("system", "developer"):
                turns.append({"role": "user" if message.role == "tool" else message.role, "content": message.text})
        rules = "\n".join(m.text for m in self.messages if m.role in ("system", "developer"))
        return [*([{"role": "system", "content": rules}] if rules else []), *turns]


class CompletionRequest(AnswerRequest):
    prompt: str | list[str] = Field(
        description="asked as one message of the user; of several, each as one, in their order: one sees what those "
        "before it have had remembered"
    )

    @property
    def messages_asked(self) -> list[str]:
        return _several(self.prompt)

    @model_validator(mode="after")
    def _asks_something(self) -> CompletionRequest:
        if not self.messages_asked:
            raise ValueError("prompt is an empty list; give a text, or a list of texts")
        return self

    def turns(self) -> list[dict[str, str]]:
        return []


class EmbeddingRequest(OpenAIRequest):
    model: str = ""
    input: str | list[str] = Field(description="one text, or several")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    @property
    def texts(self) -> list[str]:
        return _several(self.input)

    @model_validator(mode="after")
    def _has_texts(self) -> EmbeddingRequest:
        if not 1 <= len(self.texts) <= 2048:
            raise ValueError(f"input has {len(self.texts)} texts; give 1 to 2048")
        return self


class TokenUsage(BaseModel):
    """Tokens. prompt_tokens_details: how many of the prompt were there as KV."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int
    prompt_tokens_details: dict[str, int] = {}


class Memories(BaseModel):
    """Of memos alone: ids of the memories that were used, kept and forgotten for an answer."""

    used: list[str] = []
    remembered: list[str] = []
    forgotten: list[str] = []


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[MessageToolCall] | None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls"]


class TextChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class AnswerBase(BaseModel):
    id: str
    created: int
    model: str
    usage: TokenUsage
    memos: Memories


class ChatCompletion(AnswerBase):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class TextCompletion(AnswerBase):
    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "memos"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: TokenUsage
