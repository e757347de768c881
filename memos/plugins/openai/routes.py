"""The routes of OpenAI's API: statements are remembered, and questions answered from the caller's memory."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from memos.config import DecodeConfig
from memos.errors import HostError, InputError, NotFound
from memos.plugins.openai.answers import AnswerFormat, AnswerPiece, EventStream, whole
from memos.plugins.openai.tools import ClientTools
from memos.plugins.openai.wire import (
    ChatCompletion,
    ChatRequest,
    CompletionRequest,
    Embedding,
    EmbeddingRequest,
    Embeddings,
    Model,
    Models,
    TextCompletion,
    TokenUsage,
)
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.callers import Seat
from memos.plugins.server.routing import KEY, CallRunner, JsonRoute, as_json

if TYPE_CHECKING:
    from memos.kernel.mem_os import Reply


def routes() -> list[BaseRoute]:
    """For `memos serve`: chat and text completions, embeddings and models, under /v1."""
    router = APIRouter(
        prefix="/v1", tags=["OpenAI"], responses=failures.RESPONSES, dependencies=[KEY], route_class=JsonRoute
    )
    api = OpenAIEndpoints()
    streams = "or a stream of chunks"
    router.post("/chat/completions", response_model=ChatCompletion, response_description=streams)(api.chat_completions)
    router.post("/completions", response_model=TextCompletion, response_description=streams)(api.completions)
    router.post("/embeddings", response_model=Embeddings)(api.embeddings)
    router.get("/models", response_model=Models)(api.models)
    router.get("/models/{model:path}", response_model=Model)(api.model)
    return router.routes


class OpenAIEndpoints:
    """A method for each route."""

    def __init__(self) -> None:
        self._started = int(time.time())

    async def chat_completions(self, request: Request, asked: ChatRequest) -> Response:
        """Do what the last message asks for: remember, correct, forget, or answer from what is remembered."""
        return await self._answer(request, asked, chat=True)

    async def completions(self, request: Request, asked: CompletionRequest) -> Response:
        """The same for messages without turns."""
        return await self._answer(request, asked, chat=False)

    async def embeddings(self, request: Request, asked: EmbeddingRequest) -> Response:
        """A vector of length 1 for each text, as memories are found by."""
        vectors, tokens = await _calls(request).make("embed", partial(_embed, _seat(request), asked.texts))
        (_, embedding), width = _models(request), vectors.shape[1]
        if asked.dimensions not in (None, width):
            raise InputError(
                f"dimensions {asked.dimensions} is not what {embedding} makes; leave it out for its {width}"
            )
        in_base64 = asked.encoding_format == "base64"
        data = [
            Embedding(index=n, embedding=base64.b64encode(v.tobytes()).decode() if in_base64 else v.tolist())
            for n, v in enumerate(vectors.astype("<f4"))
        ]
        usage = TokenUsage(prompt_tokens=tokens, total_tokens=tokens)
        return as_json(Embeddings(data=data, model=embedding, usage=usage))

    async def models(self, request: Request) -> Response:
        """The model that answers, and the one that embeds."""
        await _calls(request).make("models", _seat(request).calls.require)
        return as_json(Models(data=[Model(id=name, created=self._started) for name in _models(request)]))

    async def model(self, request: Request, model: str) -> Response:
        await _calls(request).make("models", _seat(request).calls.require)
        if model not in (names := _models(request)):
            raise NotFound(f"there is no model {model!r:.80} here; there are {' and '.join(names)}")
        return as_json(Model(id=model, created=self._started))

    async def _answer(self, request: Request, asked: ChatRequest | CompletionRequest, *, chat: bool) -> Response:
        seat, (answering, _) = _seat(request), _models(request)
        decode = asked.decode(seat.memory.kernel.config.decode)
        tools = ClientTools.of(asked) if isinstance(asked, ChatRequest) else None
        answer = partial(_answers, seat, asked, decode)
        if tools and isinstance(asked, ChatRequest):
            answer = partial(_step, seat, asked, decode, tools)
        pieces = _calls(request).stream("chat", answer, len(asked.messages_asked))
        shape = AnswerFormat(answering, decode.max_new_tokens, chat, tools)
        if not asked.stream:
            return as_json(shape.whole(await whole(pieces)))
        first = await anext(pieces)  # what fails before the first piece is reported by its status
        with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        return EventStream(pieces, shape.events(first, pieces, with_usage))


def _seat(request: Request) -> Seat:
    seat: Seat = request.scope["seat"]
    return seat


def _calls(request: Request) -> CallRunner:
    calls: CallRunner = request.app.state.calls
    return calls


def _models(request: Request) -> tuple[str, str]:
    """The names of the model that answers, and of the one that embeds."""
    config = _seat(request).memory.kernel.config
    return _name(config.model.path), _name(config.embedder.path)


def _name(path: str) -> str:
    """Of a model: its hub name, or its folder's."""
    return Path(path).name if Path(path).is_absolute() or path.startswith(".") else path


def _answers(
    seat: Seat, asked: ChatRequest | CompletionRequest, decode: DecodeConfig, tell: Callable[[AnswerPiece], None]
) -> list[Reply]:
    """In a thread: an answer to each message that is asked, one after the other, passed on as they grow."""
    return [
        _answer(seat, asked, message, decode, lambda text, n=n: tell((n, text)))  # type: ignore[misc]
        for n, message in enumerate(asked.messages_asked)
    ]


def _answer(
    seat: Seat,
    asked: ChatRequest | CompletionRequest,
    message: str,
    decode: DecodeConfig,
    on_text: Callable[[str], None],
) -> Reply:
    begun = False

    def tell(piece: str) -> None:
        nonlocal begun
        if begun or (piece := piece.lstrip()):  # as the whole answer has none before it
            begun = True
            on_text(piece)

    calls, turns, session = seat.calls, asked.turns(), asked.session
    if asked.is_carried_out:
        reply = calls.chat(message, turns=turns, session=session, on_text=tell, decode=decode)
    else:
        via: Literal["auto", "none"] = "auto" if asked.memory else "none"
        reply = calls.ask(message, via=via, turns=turns, session=session, on_text=tell, decode=decode)
    if not begun:  # it was done without the model
        on_text(reply.text)
    return reply


def _step(
    seat: Seat, asked: ChatRequest, decode: DecodeConfig, tools: ClientTools, tell: Callable[[AnswerPiece], None]
) -> list[Reply]:
    """In a thread: a call of one of the client's tools, or an answer, from what is remembered; nothing else is done."""
    from memos.infrastructure.host.model.constrained import max_answer_tokens  # loads torch

    seat.calls.require()
    [message], turns, kernel = asked.messages_asked, tools.instructed(asked.turns()), seat.memory.kernel
    host, room = kernel.parts.host(), math.inf
    if host.context:
        taken = host.tokens_of([*turns, {"role": "user", "content": message}])
        room = host.context - taken - min(kernel.config.scheduler.prompt_tokens, host.context * 3 // 4)
    try:
        longest = max_answer_tokens(tools.schema)
    except HostError as error:
        raise InputError(f"the tools cannot be held to their schemas: {error}") from None
    held = tools.decode(decode, asked.max_new_tokens, longest, room)
    via: Literal["auto", "none"] = "auto" if asked.memory else "none"

    def tell_nothing(piece: str) -> None:  # a step is shown whole; but whoever has left is noticed at each piece
        tell((0, ""))

    return [seat.calls.ask(message, via=via, turns=turns, on_text=tell_nothing, decode=held)]


def _embed(seat: Seat, texts: list[str]) -> tuple[np.ndarray, int]:
    seat.calls.require()
    embedder = seat.memory.kernel.parts.embedder()
    return embedder.embed(texts), sum(embedder.counts(texts))
