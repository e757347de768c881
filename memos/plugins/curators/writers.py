"""Fills schemas for curators: by rules, by the local model held to the schema, or by an endpoint.

What a model answers that is not of the schema, or does not answer at all, is written by the rule instead, and counted;
after as many in a row the run goes on by the rules alone. Must not know what is written.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ValidationError

from memos.errors import InputError, MemosError
from memos.plugins.chat_endpoint import ChatEndpoint, EndpointError, Messages
from memos.plugins.curators.curator import M, Writing
from memos.plugins.curators.tables import WriterCost
from memos.plugins.tool_step import smaller

if TYPE_CHECKING:
    from memos.config import CuratorsConfig
    from memos.infrastructure.host.host import Host

log = logging.getLogger("memos")
TOKEN_CHARS = 4  # of English, by most models' tokenizers
IN_A_ROW = 3  # failures, after which a run goes on without the model
Schema = Mapping[str, object]


class Answers(Protocol):
    """A language model: JSON for each prompt, "" where it has none."""

    def answer(self, prompts: Sequence[str], schema: Schema) -> list[tuple[str, int]]:
        """(JSON, tokens that asking and answering took) of each. Raises MemosError."""
        ...


class ChatModel(Protocol):
    """A language model that goes on with a conversation."""

    def reply(self, messages: Messages, schema: Schema) -> tuple[str, int]:
        """The same of a conversation."""
        ...

    def share_of_context(self, messages: Messages) -> float:
        """How much of what it reads at most they take; 0 where that is not known."""
        ...


class CountedWriter:
    """One run's `Writer`. calls: at most so many. Where rules write, tokens are what a model would have been asked, at
    TOKEN_CHARS characters each."""

    def __init__(self, model: Answers | None, system: str, calls: int) -> None:
        self._model, self._system, self._left = model, system, calls
        self._failures = 0
        self.cost = WriterCost()

    @property
    def is_model(self) -> bool:
        return self._model is not None and self._failures < IN_A_ROW

    def fill(self, writing: Writing[M]) -> M:
        return self.fill_all([writing])[0]

    def fill_all(self, writings: Sequence[Writing[M]]) -> list[M]:
        """Raises InputError for more than a run may have."""
        if not writings:
            return []
        self._left -= len(writings)
        if self._left < 0:
            raise InputError(f"{self._system} calls its writer too often in one run (curators.calls); nothing was kept")
        began, by_model = time.monotonic(), self.is_model
        filled = self._answered(writings) if by_model else [None] * len(writings)
        rules = [writing.rule() if one is None else one for writing, one in zip(writings, filled, strict=True)]
        tokens = 0 if by_model else sum(len(writing.ask) for writing in writings) // TOKEN_CHARS
        self._spend(len(writings), tokens, time.monotonic() - began)
        return rules

    def _answered(self, writings: Sequence[Writing[M]]) -> list[M | None]:
        assert self._model
        by_schema: dict[type[M], list[int]] = {}
        for n, writing in enumerate(writings):
            by_schema.setdefault(writing.schema, []).append(n)
        out: list[M | None] = [None] * len(writings)
        for schema, places in by_schema.items():
            try:
                answers = self._model.answer([writings[n].ask for n in places], bounded(schema))
            except MemosError as error:
                self._failed(len(places), str(error))
                continue
            for n, (text, tokens) in zip(places, answers, strict=True):
                self._spend(0, tokens, 0.0)
                try:
                    out[n] = schema.model_validate_json(text)
                    self._failures = 0
                except ValidationError as error:
                    self._failed(
                        1, f"{text!r:.80} is not of the schema of {writings[n].name}: {error.errors()[0]['msg']}"
                    )
        return out

    def _failed(self, count: int, why: str) -> None:
        if not self._failures:
            log.warning("the writer of %s failed, and the rule writes instead: %s", self._system, why)
        self._failures += count
        self.cost = WriterCost(self.cost.calls, self.cost.tokens, self.cost.seconds, self.cost.failed + count)

    def _spend(self, calls: int, tokens: int, seconds: float) -> None:
        c = self.cost
        self.cost = WriterCost(c.calls + calls, c.tokens + tokens, c.seconds + seconds, c.failed)


class LocalModel:
    """The kernel's own model, held to the schema token by token; several prompts in one batch. Where prompt and longest
    answer do not fit its context, texts and lists of the answer are shorter, and then the middle of the prompt is left
    out."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host

    def answer(self, prompts: Sequence[str], schema: Schema) -> list[tuple[str, int]]:
        host, out = self._host(), [""] * len(prompts)
        for shrunk, most in ((1, None), (2, None), (4, None), (4, 2_000), (8, 600)):
            left = [n for n, answer in enumerate(out) if not answer]
            if not left:
                break
            asked = [[{"role": "user", "content": _ends(prompts[n], most)}] for n in left]
            for n, answer in zip(left, host.extract(asked, smaller(schema, shrunk)), strict=True):
                out[n] = answer
        return [(answer, sum(host.counts([prompt, answer]))) for prompt, answer in zip(prompts, out, strict=True)]

    def reply(self, messages: Messages, schema: Schema) -> tuple[str, int]:
        host = self._host()
        tried = (host.extract([messages], smaller(schema, by))[0] for by in (1, 2, 4, 8))
        answer = next(filter(None, tried), "")
        return answer, host.tokens_of(messages) + sum(host.counts([answer]))

    def share_of_context(self, messages: Messages) -> float:
        host = self._host()
        return host.tokens_of(messages) / host.context if host.context else 0.0


def _ends(prompt: str, most: int | None) -> str:
    """The beginning, which says what is asked, and the end, which is what it is asked of."""
    if most is None or len(prompt) <= most:
        return prompt
    return f"{prompt[: most // 3]}\n[...]\n{prompt[-(most - most // 3) :]}"


class Endpoint:
    """A server, asked for JSON of a schema."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self._endpoint = endpoint

    def answer(self, prompts: Sequence[str], schema: Schema) -> list[tuple[str, int]]:
        return [self.reply([{"role": "user", "content": prompt}], schema) for prompt in prompts]

    def share_of_context(self, messages: Messages) -> float:
        return 0.0

    def reply(self, messages: Messages, schema: Schema) -> tuple[str, int]:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        try:
            answer = self._endpoint.ask(messages, response_format=form)
        except EndpointError as error:
            raise MemosError(f"{error} (curators.writer); start it, or set curators.writer to rules") from None
        return answer.text, sum(answer.tokens)


def model_of(config: CuratorsConfig, host: Callable[[], Host]) -> LocalModel | Endpoint | None:
    """What curators.writer names; None for rules alone."""
    if config.writer == "rules":
        return None
    if config.writer == "local":
        return LocalModel(host)
    return Endpoint(ChatEndpoint(config.writer, config.model, config.key_from, config.timeout_s))


def bounded(schema: type[BaseModel]) -> dict[str, object]:
    """A model's JSON Schema in the form that the constrained decoding takes: nothing referred to, every property there
    is required, no others."""
    whole = schema.model_json_schema()
    definitions = whole.get("$defs", {})

    def plain(part: Any) -> Any:  # of JSON
        if isinstance(part, list):
            return [plain(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return plain(definitions[part["$ref"].rsplit("/", 1)[1]])
        kept = {k: plain(v) for k, v in part.items() if k not in ("title", "default", "$defs", "description")}
        if part.get("type") == "object":
            named = {name: plain(of) for name, of in part.get("properties", {}).items()}
            kept |= {"properties": named, "required": list(named), "additionalProperties": False}
        if kept.get("type") == "integer" and {"minimum", "maximum"} <= kept.keys():
            return {"enum": list(range(kept["minimum"], kept["maximum"] + 1))}
        return kept

    form: dict[str, object] = json.loads(json.dumps(plain(whole)))
    return form
