"""OpenAI's API over the memory of whoever calls: what is said is remembered, and what is remembered answers."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pydantic_core
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.config import DecodeConfig
from memos.errors import InputError, MemosError, NotFound
from memos.interface.doors.server.body import KEY, JsonRoute
from memos.interface.doors.server.calls import Calls, as_json
from memos.interface.doors.server.edge import failures
from memos.interface.doors.server.edge.callers import Seat
from memos.interface.doors.server.openai.wire import (
    ChatChoice,
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    Embedding,
    EmbeddingRequest,
    Embeddings,
    Memories,
    Model,
    Models,
    Said,
    TextChoice,
    Usage,
)

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS, Reply

Asked = ChatRequest | CompletionRequest
Piece = tuple[int, str]  # which answer it is of, and what it adds


def openai_router(kernel: MemOS, calls: Calls) -> APIRouter:
    router = APIRouter(
        prefix="/v1", tags=["OpenAI"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    began = int(time.time())
    answering, embedding = _name(kernel.config.model.path), _name(kernel.config.embedder.path)

    async def answered(request: Request, asked: Asked, form: type[_Chat] | type[_Text]) -> Response:
        decode = asked.decode(kernel.config.decode)
        told = calls.told("chat", partial(_answers, request.scope["seat"], asked, decode), len(asked.asks))
        shape = form(answering, decode.max_new_tokens)
        if not asked.stream:
            return as_json(shape.whole(await _whole(told)))
        first = await anext(told)  # what fails before the first piece is told by its status
        return _Events(
            told, _events(first, told, shape, bool(asked.stream_options and asked.stream_options.include_usage))
        )

    @router.post("/chat/completions", response_model=ChatCompletion, response_description="or a stream of chunks")
    async def chat_completions(request: Request, asked: ChatRequest) -> Response:
        """Do what the last message asks for: remember, correct, forget, or answer from what is remembered."""
        return await answered(request, asked, _Chat)

    @router.post("/completions", response_model=Completion, response_description="or a stream of chunks")
    async def completions(request: Request, asked: CompletionRequest) -> Response:
        """The same for messages without turns."""
        return await answered(request, asked, _Text)

    @router.post("/embeddings", response_model=Embeddings)
    async def embeddings(request: Request, asked: EmbeddingRequest) -> Response:
        """A vector of length 1 for each text, as memories are found by."""
        seat: Seat = request.scope["seat"]
        vectors, tokens = await calls.make("embed", partial(_embed, seat, kernel, asked.texts))
        if asked.dimensions not in (None, vectors.shape[1]):
            raise InputError(
                f"dimensions {asked.dimensions} is not what {embedding} makes; leave it out for its {vectors.shape[1]}"
            )
        base64d = asked.encoding_format == "base64"
        told = [
            Embedding(index=n, embedding=base64.b64encode(v.tobytes()).decode() if base64d else v.tolist())
            for n, v in enumerate(vectors.astype("<f4"))
        ]
        return as_json(Embeddings(data=told, model=embedding, usage=Usage(prompt_tokens=tokens, total_tokens=tokens)))

    @router.get("/models", response_model=Models)
    async def models(request: Request) -> Response:
        """The model that answers, and the one that embeds."""
        await calls.make("models", request.scope["seat"].require)
        return as_json(Models(data=[Model(id=name, created=began) for name in (answering, embedding)]))

    @router.get("/models/{model:path}", response_model=Model)
    async def model(request: Request, model: str) -> Response:
        await calls.make("models", request.scope["seat"].require)
        if model not in (answering, embedding):
            raise NotFound(f"there is no model {model!r:.80} here; there are {answering} and {embedding}")
        return as_json(Model(id=model, created=began))

    return router


def _name(path: str) -> str:
    """Of a model: its hub name, or its folder's."""
    return Path(path).name if Path(path).is_absolute() or path.startswith(".") else path


def _answers(seat: Seat, asked: Asked, decode: DecodeConfig, tell: Callable[[Piece], None]) -> list[Reply]:
    """In a thread: an answer to each message that is asked, one after the other, told as they grow."""
    return [
        _answer(seat, asked, message, decode, lambda text, n=n: tell((n, text)))  # type: ignore[misc]
        for n, message in enumerate(asked.asks)
    ]


def _answer(seat: Seat, asked: Asked, message: str, decode: DecodeConfig, on_text: Callable[[str], None]) -> Reply:
    said: dict[str, Any] = {"turns": asked.turns()}
    if asked.session is not None:
        said["session"] = asked.session
    told = False

    def tell(piece: str) -> None:
        nonlocal told
        if told or (piece := piece.lstrip()):  # as the whole answer has none before it
            told = True
            on_text(piece)

    if asked.memory and asked.schema_of_answer is None:
        reply: Reply = seat.calls.chat(message, **said, on_text=tell, decode=decode)
    else:
        via = "auto" if asked.memory else "none"
        reply = seat.calls.ask(message, via=via, **said, on_text=tell, decode=decode)
    if not told:  # it was done without the model
        on_text(reply.text)
    return reply


def _embed(seat: Seat, kernel: MemOS, texts: list[str]) -> tuple[np.ndarray, int]:
    seat.require()
    return kernel.embedder.embed(texts), kernel.embedder.tokens(texts)


async def _whole(told: AsyncGenerator[Piece | list[Reply], None]) -> list[Reply]:
    """The replies at the end."""
    async with aclosing(told):
        return await anext(piece async for piece in told if isinstance(piece, list))


class _Shape:
    """How replies of one route look, whole and in chunks: `choice` is a piece of the answer, or its end.

    most: tokens at which an answer is cut.
    """

    prefix, chunk = "", ""

    def __init__(self, model: str, most: int) -> None:
        self._most, self._begun = most, set[int]()
        self.head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def finish(self, reply: Reply) -> Literal["stop", "length"]:
        return "length" if reply.answer_tokens >= self._most else "stop"


class _Chat(_Shape):
    prefix, chunk = "chatcmpl", "chat.completion.chunk"

    def whole(self, replies: Sequence[Reply]) -> ChatCompletion:
        choices = [
            ChatChoice(index=n, message=Said(content=reply.text), finish_reason=self.finish(reply))
            for n, reply in enumerate(replies)
        ]
        return ChatCompletion(**self.head, choices=choices, usage=_usage(replies), memos=_memories(replies))

    def choice(self, index: int, text: str | None, finish: str | None = None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        if index not in self._begun:  # clients put what the pieces say one behind the other, also who says it
            self._begun.add(index)
            delta = {"role": "assistant", **delta}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


class _Text(_Shape):
    prefix, chunk = "cmpl", "text_completion"

    def whole(self, replies: Sequence[Reply]) -> Completion:
        choices = [
            TextChoice(index=n, text=reply.text, finish_reason=self.finish(reply)) for n, reply in enumerate(replies)
        ]
        return Completion(**self.head, choices=choices, usage=_usage(replies), memos=_memories(replies))

    def choice(self, index: int, text: str | None, finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "text": text or "", "logprobs": None, "finish_reason": finish}


def _usage(replies: Sequence[Reply]) -> Usage:
    cached, written = sum(r.past_tokens for r in replies), sum(r.answer_tokens for r in replies)
    read = cached + sum(r.prompt_tokens for r in replies)
    return Usage(
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


async def _events(
    piece: Piece | list[Reply],
    told: AsyncGenerator[Piece | list[Reply], None],
    shape: _Chat | _Text,
    with_usage: bool,
) -> AsyncGenerator[bytes, None]:
    """The stream of answers of which the first piece is there. An error within it is its last event but one."""

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        usage = {"usage": None} if with_usage else {}
        return _event({**shape.head, "object": shape.chunk, "choices": choices, **usage, **more})

    try:
        while isinstance(piece, tuple):
            yield event([shape.choice(*piece)])
            piece = await anext(told)
        for n, reply in enumerate(piece):
            yield event([shape.choice(n, None, shape.finish(reply))], memos=_memories([reply]))
        if with_usage:
            yield event([], usage=_usage(piece))
    except MemosError as error:
        yield _event(failures.failed(error))
    yield b"data: [DONE]\n\n"


def _event(data: Any) -> bytes:
    return b"data: " + pydantic_core.to_json(data) + b"\n\n"


class _Events(StreamingResponse):
    """Server-sent events. However it ends, also by the client's leaving, the answer ends with it."""

    def __init__(self, told: AsyncGenerator[Any, None], events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._of = (events, told)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for generator in self._of:
                await generator.aclose()
