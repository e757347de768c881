"""Writes answers in the forms of OpenAI's API: whole, or as server-sent events while they grow."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal, TypedDict

import pydantic_core
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.errors import MemosError
from memos.interface.doors.server.edge import failures
from memos.interface.doors.server.openai.wire import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    Memories,
    TextChoice,
    TextCompletion,
    TokenUsage,
)

if TYPE_CHECKING:
    from memos.kernel.mem_os import Reply

AnswerPiece = tuple[int, str]  # which answer it is of, and what it adds
Pieces = AsyncGenerator["AnswerPiece | list[Reply]", None]  # and the replies at the end
Json = dict[str, object]


async def whole(pieces: Pieces) -> list[Reply]:
    """The replies at the end."""
    async with aclosing(pieces):
        return await anext(piece async for piece in pieces if isinstance(piece, list))


class Head(TypedDict):
    """What an answer, and each of its chunks, begins with."""

    id: str
    created: int
    model: str


class ChatFormat:
    """Replies as chat completions; `choice` is a piece of an answer, or its end."""

    object = "chat.completion.chunk"

    def __init__(self, model: str, max_tokens: int) -> None:
        """max_tokens: at which an answer is cut."""
        self._max_tokens, self._begun = max_tokens, set[int]()
        self.head = _head("chatcmpl", model)

    def whole(self, replies: Sequence[Reply]) -> ChatCompletion:
        choices = [
            ChatChoice(index=n, message=AssistantMessage(content=reply.text), finish_reason=self.finish(reply))
            for n, reply in enumerate(replies)
        ]
        return ChatCompletion(**self.head, choices=choices, usage=_usage(replies), memos=_memories(replies))

    def choice(self, index: int, text: str | None, finish: str | None = None) -> Json:
        delta = {} if text is None else {"content": text}
        if index not in self._begun:  # clients put what the pieces say one behind the other, also who says it
            self._begun.add(index)
            delta = {"role": "assistant", **delta}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

    def finish(self, reply: Reply) -> Literal["stop", "length"]:
        return _finish(reply, self._max_tokens)


class TextFormat:
    """Replies as text completions; `choice` is a piece of an answer, or its end."""

    object = "text_completion"

    def __init__(self, model: str, max_tokens: int) -> None:
        """max_tokens: at which an answer is cut."""
        self._max_tokens = max_tokens
        self.head = _head("cmpl", model)

    def whole(self, replies: Sequence[Reply]) -> TextCompletion:
        choices = [
            TextChoice(index=n, text=reply.text, finish_reason=self.finish(reply)) for n, reply in enumerate(replies)
        ]
        return TextCompletion(**self.head, choices=choices, usage=_usage(replies), memos=_memories(replies))

    def choice(self, index: int, text: str | None, finish: str | None = None) -> Json:
        return {"index": index, "text": text or "", "logprobs": None, "finish_reason": finish}

    def finish(self, reply: Reply) -> Literal["stop", "length"]:
        return _finish(reply, self._max_tokens)


def _head(prefix: str, model: str) -> Head:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}


def _finish(reply: Reply, max_tokens: int) -> Literal["stop", "length"]:
    return "length" if reply.answer_tokens >= max_tokens else "stop"


def _usage(replies: Sequence[Reply]) -> TokenUsage:
    cached, written = sum(r.past_tokens for r in replies), sum(r.answer_tokens for r in replies)
    read = cached + sum(r.prompt_tokens for r in replies)
    return TokenUsage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details={"cached_tokens": cached},
    )


def _memories(replies: Sequence[Reply]) -> Memories:
    used = (cube.id for reply in replies for cube in (*reply.admission.cubes, *reply.admission.internal))
    return Memories(
        used=list(dict.fromkeys(used)),
        remembered=[cube.id for reply in replies for cube in reply.remembered],
        forgotten=[id for reply in replies for id in reply.forgotten],
    )


async def events(
    piece: AnswerPiece | list[Reply], pieces: Pieces, shape: ChatFormat | TextFormat, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The stream of answers of which the first piece is there. An error within it is its last event but one."""

    def event(choices: list[Json], **more: object) -> bytes:
        usage = {"usage": None} if with_usage else {}
        return _event({**shape.head, "object": shape.object, "choices": choices, **usage, **more})

    try:
        while isinstance(piece, tuple):
            yield event([shape.choice(*piece)])
            piece = await anext(pieces)
        for n, reply in enumerate(piece):
            yield event([shape.choice(n, None, shape.finish(reply))], memos=_memories([reply]))
        if with_usage:
            yield event([], usage=_usage(piece))
    except MemosError as error:
        yield _event(failures.failed(error))
    yield b"data: [DONE]\n\n"


def _event(data: object) -> bytes:
    return b"data: " + pydantic_core.to_json(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Server-sent events. However it ends, also by the client's leaving, the answer ends with it."""

    def __init__(self, pieces: Pieces, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._generators = (events, pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for generator in self._generators:
                await generator.aclose()
