"""Who answers the questions: a sentence of what is shown, a local model, or an endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from memos.bench.qa.extractive import Extractive
from memos.bench.qa.records import Answer, Answerer, LanguageModel, Shown, Task, digest
from memos.config import Config, DecodeConfig, ModelConfig
from memos.errors import ContextOverflow, MemosError
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.prompt import memory_block, memory_lines
from memos.infrastructure.host.request import Request
from memos.plugins.chat_endpoint import ChatEndpoint, EndpointError

EXTRACTIVE = "extractive"
TRIES = 6  # of a call of an endpoint: some half a minute
CHARS = 3  # of a token, at least, in most languages
IN_A_ROW = 20  # calls that fail one after the other, after which an endpoint is taken to be gone
Message = dict[str, str]


@dataclass(frozen=True)
class EndpointLimits:
    """What an endpoint may be asked. concurrent: calls at once. tokens: read and written, of all calls; cost: the same
    in money, by prices of a million tokens (read, written)."""

    concurrent: int = 8
    timeout_s: float = 120.0
    tokens: int | None = None
    cost: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    model: str = "default"
    key_from: str = "OPENAI_API_KEY"


def answerer(model: str, config: Config, limits: EndpointLimits, context: int | None = None) -> Answerer:
    """Whoever `model` names: extractive, a URL, or a local model's folder or hub name. context: tokens that a model is
    given at most; of one whose tokenizer is not here, CHARS characters are taken for one. Raises HostError,
    ModelNotFound."""
    if model == EXTRACTIVE:
        return Extractive(Embedder(config.embedder))
    return language_model(model, config, limits, context)


def language_model(model: str, config: Config, limits: EndpointLimits, context: int | None = None) -> LanguageModel:
    if is_local(model):
        return LocalAnswerer(Host.load(of_model(config, model).model), config.decode, context)
    return EndpointAnswerer(model, config, limits, context)


def is_local(model: str) -> bool:
    """True of a causal LM that runs here."""
    return model != EXTRACTIVE and not model.startswith(("http://", "https://"))


def of_model(config: Config, path: str) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update={"path": path})})


def in_order(shown: Sequence[Shown]) -> list[Shown]:
    """As a prompt shows memories: oldest first, what has no date before."""
    return sorted(shown, key=lambda memory: memory.said)


def that_fit(shown: Sequence[Shown], tokens: Sequence[int], room: int) -> list[Shown]:
    """As many as fit into so many tokens, oldest first: the highest scores, and of the same score the latest."""
    taken = []
    for n in sorted(range(len(shown)), key=lambda n: (shown[n].score, shown[n].said), reverse=True):
        if tokens[n] > room:
            break
        room -= tokens[n]
        taken.append(shown[n])
    return in_order(taken)


def _asked(task: Task) -> Message:
    letters = "".join(f"\n({chr(65 + n)}) {choice}" for n, choice in enumerate(task.choices))
    return {"role": "user", "content": f"{task.question}{letters}"}


class LocalAnswerer:
    """A causal LM that runs here, greedy, in batches. context: tokens that it is given at most, where it reads more.
    ttft_ms is that of the batch."""

    def __init__(self, host: Host, decode: DecodeConfig, context: int | None = None) -> None:
        self.host, self._decode = host, decode
        self._context = min((n for n in (host.context, context) if n is not None), default=None)
        self.name = host.config.path

    def answer(self, tasks: Sequence[Task]) -> list[Answer]:
        out, rows, asked = dict[int, Answer](), [], list[tuple[int, str, int]]()
        for n, task in enumerate(tasks):
            memories = self._that_fit(task)
            try:
                row = self.host.row(Request((_asked(task),), tuple(m.text for m in memories)), self._decode)
            except ContextOverflow as error:
                out[n] = Answer(failed=f"the question alone does not fit: {error}", left_out=len(task.shown))
                continue
            prompt = digest(json.dumps(row.ids))
            asked.append((n, prompt, len(task.shown) - len(memories)))
            rows.append(row)
        for (n, prompt, left_out), done in zip(asked, self.host.complete(rows, self._decode), strict=True):
            out[n] = Answer(
                text=done.text.strip(),
                prompt=prompt,
                prompt_tokens=done.prompt_tokens,
                answer_tokens=len(done.ids),
                calls=1,
                left_out=left_out,
                ttft_ms=done.ttft_s * 1e3,
                seconds=done.seconds,
            )
        return [out[n] for n in range(len(tasks))]

    def ask(self, prompts: Sequence[str]) -> list[str]:
        """Answers to prompts as they stand; "" where one does not fit."""
        answers = self.answer([Task(id=str(n), system="", question=prompt) for n, prompt in enumerate(prompts)])
        return [answer.text for answer in answers]

    def _that_fit(self, task: Task) -> list[Shown]:
        """The memories that fit into the model's context with the question and an answer."""
        if self._context is None:
            return in_order(task.shown)
        around = len(self.host.prompts.build(["x"], [_asked(task)]))
        counts = self.host.counts([memory.text for memory in task.shown])
        return that_fit(task.shown, counts, self._context - self._decode.max_new_tokens - around)


class EndpointAnswerer:
    """A server that speaks OpenAI's protocol, asked some at a time. ttft_ms: until the whole answer was there."""

    def __init__(self, url: str, config: Config, limits: EndpointLimits, context: int | None = None) -> None:
        self._endpoint = ChatEndpoint(url, limits.model, limits.key_from, limits.timeout_s, TRIES)
        self._config, self._limits, self._context = config, limits, context
        self.name = f"{limits.model} at {url}"
        self._lock, self._spent, self._in_a_row = threading.Lock(), [0, 0], 0

    def answer(self, tasks: Sequence[Task]) -> Iterator[Answer]:
        return self._all([self._messages(task) for task in tasks])

    def ask(self, prompts: Sequence[str]) -> list[str]:
        """Answers to prompts as they stand; "" where there is none."""
        return [answer.text for answer in self._all([([{"role": "user", "content": p}], 0) for p in prompts])]

    def _messages(self, task: Task) -> tuple[list[Message], int]:
        """What is asked, and how many memories did not fit."""
        shown, asked = in_order(task.shown), _asked(task)
        if self._context is not None:
            around = len(_system_text(self._config.model, ["x"])) + len(asked["content"])
            room = self._context - self._config.decode.max_new_tokens - around // CHARS
            shown = that_fit(task.shown, [len(memory.text) // CHARS + 1 for memory in task.shown], room)
        told = _system_text(self._config.model, [memory.text for memory in shown])
        return [*([{"role": "system", "content": told}] if told else []), asked], len(task.shown) - len(shown)

    def _all(self, asked: Sequence[tuple[list[Message], int]]) -> Iterator[Answer]:
        """Some at a time, each as soon as it and those before it are there."""
        pool = ThreadPoolExecutor(self._limits.concurrent)
        try:
            yield from pool.map(lambda one: self._one(*one), asked)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # of one that is interrupted

    def _one(self, messages: list[Message], left_out: int) -> Answer:
        prompt = digest(json.dumps(messages, ensure_ascii=False))
        if why := self._over():
            return Answer(prompt=prompt, failed=why)
        try:
            done = self._endpoint.ask(messages, max_tokens=self._config.decode.max_new_tokens)
        except EndpointError as error:
            with self._lock:
                self._in_a_row += 1
                if error.hopeless or self._in_a_row >= IN_A_ROW:
                    raise MemosError(f"{error}; what was answered is kept, and the same command goes on") from None
            return Answer(prompt=prompt, failed=str(error))
        with self._lock:
            self._in_a_row = 0
            self._spent = [self._spent[0] + done.tokens[0], self._spent[1] + done.tokens[1]]
        return Answer(
            text=done.text.strip(),
            prompt=prompt,
            prompt_tokens=done.tokens[0],
            answer_tokens=done.tokens[1],
            calls=done.tries,
            left_out=left_out,
            ttft_ms=done.seconds * 1e3,
            seconds=done.seconds,
        )

    def _over(self) -> str:
        """Why no more is asked; "" while something is."""
        read, written = self._spent
        limits = self._limits
        if limits.tokens is not None and read + written >= limits.tokens:
            return f"the budget of {limits.tokens:,} tokens is spent; the same command with a larger one goes on"
        cost = (read * limits.prices[0] + written * limits.prices[1]) / 1e6
        if limits.cost is not None and cost >= limits.cost:
            return f"the budget of {limits.cost:g} is spent; the same command with a larger one goes on"
        return ""


def _system_text(config: ModelConfig, memories: Sequence[str]) -> str:
    """The system message that shows memories to a model whose tokenizer is not here: what `PromptFormat` shows."""
    fenced = config.fence != "never"
    lines = "".join(memory_lines(config, memories, fenced))
    return f"{config.system}{memory_block(config, lines, fenced)}" if memories else config.system
