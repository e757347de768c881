"""Writes answers in the forms of OpenAI's API: whole, or as server-sent events while they grow."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import pydantic_core
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.errors import MemosError
from memos.plugins.openai.wire import AssistantMessage, Memories, TokenUsage
from memos.plugins.server.edge import failures

if TYPE_CHECKING:
    from memos.kernel.mem_os import Reply
    from memos.plugins.openai.tools import ClientTools, Finish

AnswerPiece = tuple[int, str]  # which answer it is of, and what it adds
Pieces = AsyncGenerator["AnswerPiece | list[Reply]", None]  # and the replies at the end
Json = dict[str, object]


async def whole(pieces: Pieces) -> list[Reply]:
    """The replies at the end."""
    async with aclosing(pieces):
        return await anext(piece async for piece in pieces if isinstance(piece, list))


class AnswerFormat:
    """Replies as chat completions, or as text completions: whole, or chunk by chunk."""

    def __init__(self, model: str, max_tokens: int, chat: bool, tools: ClientTools | None = None) -> None:
        """max_tokens: at which an answer is cut. tools: those that an answer is a step with, which streams whole."""
        self._max_tokens, self._chat, self._begun, self._tools = max_tokens, chat, set[int](), tools
        self._object = "chat.completion" if chat else "text_completion"
        id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._head: Json = {"id": id, "created": int(time.time()), "model": model}

    def whole(self, replies: Sequence[Reply]) -> Json:
        choices = list[Json]()
        for n, reply in enumerate(replies):
            message, finish = self._message(reply)
            choices.append(self._choice(n, {"message": message} if self._chat else {"text": reply.text}, finish))
        more = {"choices": choices, "usage": _usage(replies), "memos": _memories(replies)}
        return {**self._head, "object": self._object, **more}

    async def events(
        self, piece: AnswerPiece | list[Reply], pieces: Pieces, with_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """The stream of answers of which the first piece is there. An error within it is its last event but one."""
        usage = {"usage": None} if with_usage else {}
        head = {**self._head, "object": f"{self._object}.chunk" if self._chat else self._object, **usage}
        try:
            while isinstance(piece, tuple):
                if not self._tools:
                    yield _event({**head, "choices": [self._piece(*piece)]})
                piece = await anext(pieces)
            for n, reply in enumerate(piece):
                message, finish = self._message(reply)
                if self._tools:
                    calls = [{"index": m, **call.model_dump()} for m, call in enumerate(message.tool_calls or ())]
                    delta = {"role": "assistant", **({"tool_calls": calls} if calls else {"content": message.content})}
                    yield _event({**head, "choices": [self._choice(n, {"delta": delta}, None)]})
                    self._begun.add(n)
                end = self._piece(n, None, finish)
                yield _event({**head, "choices": [end], "memos": _memories([reply])})
            if with_usage:
                yield _event({**head, "choices": [], "usage": _usage(piece)})
        except MemosError as error:
            yield _event(failures.failed(error))
        yield b"data: [DONE]\n\n"

    def _piece(self, n: int, text: str | None, finish: str | None = None) -> Json:
        """What a chunk adds to an answer, or its end."""
        if not self._chat:
            return self._choice(n, {"text": text or ""}, finish)
        delta = {} if text is None else {"content": text}
        if n not in self._begun:  # clients put what the pieces say one behind the other, also who says it
            self._begun.add(n)
            delta = {"role": "assistant", **delta}
        return self._choice(n, {"delta": delta}, finish)

    def _choice(self, n: int, content: Json, finish: str | None) -> Json:
        return {"index": n, **content, "logprobs": None, "finish_reason": finish}

    def _message(self, reply: Reply) -> tuple[AssistantMessage, Finish]:
        if self._tools:
            return self._tools.message(reply.text)
        return AssistantMessage(content=reply.text), "length" if reply.answer_tokens >= self._max_tokens else "stop"


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
