"""Continuous batching: answers share forwards, and requests join and leave at every step (Orca, OSDI 2022).

    join -> [the next token of every answer that grows, and pieces of prompts] -> one forward -> choose -> leave

One thread runs the model while there is something to answer; `_turn` decides who is read next.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from transformers import PreTrainedModel

from memos.config import DecodeConfig
from memos.cost import spent
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.forward import CausalLM, forward
from memos.infrastructure.host.kv.cache import Activation, cached_layers, room_for
from memos.infrastructure.host.model.capability import packs
from memos.infrastructure.host.model.decode import Decoder, DecodeRow, Growing, ModelAnswer, prefill_inputs
from memos.infrastructure.host.model.packed import PackedText, Pages, packed_forward
from memos.infrastructure.host.threads import begun, release_openmp_threads, torch_multiplies_alone
from memos.lazy import Lazy

STEP_TOKENS, ALONE_TOKENS = 512, 2048  # of prompts that one forward reads while answers grow, and while none does
# Parameters times tokens of a forward that one thread computes as fast as several (15 tokens of the packaged model).
# A helper that has slept since the last one is often woken on the core of the thread that waits for it.
ONE_THREAD_WORK = 2**25
STEP_S, MOST_TOKENS = 0.2, 4096  # so long may they wait for more of them, and so many are the most
_GATHER_S, _GLANCE_S = 0.03, 0.0005  # so long may the first of several wait for the others, and look so often
Pieces = Generator[str, None, ModelAnswer]  # of an answer, which is returned whole at the end
Under = Callable[[Sequence[Stack], Sequence[int]], CausalLM]  # stacks of texts, and how many tokens of each are read


class Batch(Protocol):
    """Answers requests beside one another, each as if it were alone: `ContinuousBatch`, or what an engine brings."""

    @property
    def together(self) -> bool: ...
    @property
    def adapters(self) -> set[str]: ...  # names of the folders of those that it keeps itself
    def takes(self, row: DecodeRow, config: DecodeConfig) -> bool: ...
    def stream(self, row: DecodeRow, config: DecodeConfig, stack: Stack, began: float, listened: bool) -> Pieces: ...
    def release(self) -> None:
        """Let go of all that was made of payloads."""


@dataclass(eq=False)
class _Generation:
    """One request between its prompt and its answer."""

    row: DecodeRow
    config: DecodeConfig
    stack: Stack
    growing: Growing
    listened: bool  # somebody wants the pieces
    text: PackedText = field(init=False)
    unread: tuple[int, ...] = field(init=False)  # of the prompt; then the token that was chosen last
    pieces: deque[str] = field(default_factory=deque)
    news: threading.Event = field(default_factory=threading.Event)
    first_at: float = 0.0  # `time.perf_counter()` at the first token
    failed: Exception | None = None
    ended: bool = False  # all of it is there
    left: bool = False  # nobody waits for it any more

    def __post_init__(self) -> None:
        self.text, self.unread = PackedText(self.row.past, self.row.private), self.row.ids

    @property
    def over(self) -> bool:
        return self.left or self.ended or self.failed is not None

    @property
    def place(self) -> tuple[Stack, tuple[int, int]]:
        """In the order of which requests with the same adapters, and over the same KV, lie side by side."""
        return self.stack, self.text.beginning or (0, 0)

    def fail(self, error: Exception) -> None:
        self.failed = error
        self.news.set()


class ContinuousBatch:
    """The requests that one model answers at once, each as if it were alone."""

    def __init__(self, model: PreTrainedModel, decoder: Decoder, under: Under, most: int) -> None:
        """most: requests that are answered at once; others wait, first come, first served."""
        self._model, self._decoder, self._under, self._most = model, decoder, under, most
        self.coming = set[int]()  # threads that make the prompt of a request
        self._packs = Lazy(lambda: packs(model))
        self._joining, self._lock, self._running = deque[_Generation](), threading.Lock(), False
        self._thread = ThreadPoolExecutor(1, "memos-model")
        self._pages, self._step_tokens = Pages(), STEP_TOKENS
        self._parameters = model.num_parameters()
        self.adapters = set[str]()  # none: they are the host's

    @property
    def together(self) -> bool:
        """Whether this model can answer several requests at once, tried once."""
        return self._decoder.limit is None and self._packs()

    def takes(self, row: DecodeRow, config: DecodeConfig) -> bool:
        """True if a row can be answered beside others."""
        has_states = row.past is not None and row.past.states
        return config.beams == 1 and not has_states and self.together

    def release(self) -> None: ...  # of them it has what the running requests have

    def stream(self, row: DecodeRow, config: DecodeConfig, stack: Stack, began: float, listened: bool) -> Pieces:
        """As `Decoder.stream`, of one row under its adapters. Without a listener, no pieces are made."""
        self._decoder.require_room(row.past_length + len(row.ids), config)
        mine = _Generation(row, config, stack, Growing(torch.Generator().manual_seed(config.seed)), listened)
        with self._lock:
            self._joining.append(mine)
            starts, self._running = not self._running, True
        release_openmp_threads()  # this thread waits now, and would slow the model's down
        if starts:
            begun(self._thread, self._run)
        return self._answered(mine, began)

    def _answered(self, mine: _Generation, began: float) -> Pieces:
        """What comes of one that has joined; if nobody waits for it any more, it leaves."""
        try:
            while not mine.over:
                mine.news.wait()
                mine.news.clear()
                while mine.pieces:
                    yield mine.pieces.popleft()
            if mine.failed:
                raise mine.failed
            while mine.pieces:
                yield mine.pieces.popleft()
        finally:
            mine.left = True
            spent(1, len(mine.row.ids) + len(mine.row.renewed) + len(mine.growing.ids))
        first = mine.first_at - began
        return self._decoder.answer(mine.row, mine.growing, mine.config, first, time.perf_counter() - began)

    @torch.inference_mode()
    def _run(self) -> None:
        """Step by step, until there is nothing to answer."""
        going, gathered = list[_Generation](), 0.0
        while True:
            if over := [one for one in going if one.over]:
                self._pages.drop([one.text for one in over])
                going = [one for one in going if one not in over]
            with self._lock:
                joining = [self._joining.popleft() for _ in range(min(len(self._joining), self._most - len(going)))]
                if not (going or joining):
                    self._pages, self._running = Pages(), False
                    return
            gathered = gathered if going else time.perf_counter() + _GATHER_S
            going += joining
            for one in joining:
                self._begin(one)
            if self.coming and len(going) < self._most and time.perf_counter() < gathered:
                time.sleep(_GLANCE_S)  # so that those who ask at once read their prompts together
            elif turn := _turn(going, self._step_tokens):
                gathered = 0.0
                self._step(turn)

    def _begin(self, one: _Generation) -> None:
        """Rows of KV that are computed anew are, with a mask of their own; the last token is read with the others."""
        row = one.row
        try:
            if row.renewed:
                assert row.past
                with room_for("this request"):
                    inputs, _ = prefill_inputs(self._model, [replace(row, ids=row.ids[:-1])], 0)
                    layers = cached_layers(forward(self._model, inputs, 1).past_key_values)
                past = Activation((*row.past.ids, *row.ids[:-1]), layers)
                one.text, one.unread = PackedText(past, private=True), row.ids[-1:]
            if row.past and row.private:  # the text has its layers, until they are in pages
                one.row = replace(row, past=replace(row.past, layers=()))
            self._pages.give(one.text, len(one.unread))  # side by side
        except Exception as error:
            one.fail(error)

    def _step(self, turn: Sequence[tuple[_Generation, int]]) -> None:
        """One forward, and what was chosen after it. Where it fails, each is read alone, and fails alone."""
        began, read = time.perf_counter(), sum(tokens for _, tokens in turn)
        try:
            with room_for("this request"):
                logits = self._forward(turn)
        except Exception as error:
            # there may be no memory for what one would read next: the others need none of it
            self._pages.trim([one.text for one, _ in turn])
            if len(turn) > 1:
                for part in turn:
                    self._step([part])
            else:
                turn[0][0].fail(error)
            return
        at = time.perf_counter()
        if read >= STEP_TOKENS:
            self._step_tokens = min(MOST_TOKENS, max(STEP_TOKENS, int(read * STEP_S / (at - began))))
        chosen = logits.argmax(-1).tolist()
        for n, (one, tokens) in enumerate(turn):
            one.unread = one.unread[tokens:]
            if one.text.failed:
                one.fail(one.text.failed)
            elif not one.unread:
                one.first_at = one.first_at or at
                try:
                    self._take(one, chosen[n], logits[n])
                except Exception as error:  # of its schema, for instance; the thread goes on for the others
                    one.fail(error)

    def _forward(self, turn: Sequence[tuple[_Generation, int]]) -> torch.Tensor:
        """[requests, vocabulary] in fp32 on the CPU, after the tokens that were read of each."""
        model = self._under([one.stack for one, _ in turn], [tokens for _, tokens in turn])
        ids = [one.unread[:tokens] for one, tokens in turn]
        few = sum(map(len, ids)) * self._parameters <= ONE_THREAD_WORK
        with torch_multiplies_alone() if few else nullcontext():
            return packed_forward(model, self._pages, [one.text for one, _ in turn], ids).float().cpu()

    def _take(self, one: _Generation, likeliest: int, logits: torch.Tensor) -> None:
        """The next token of an answer, and what of its text is certain."""
        config, row, grown = one.config, one.row, one.growing
        if row.constraint or config.temperature:
            allowed = row.constraint.allowed(logits) if row.constraint else logits
            likeliest = self._decoder.pick(allowed, grown.generator, config)
        grown.take(likeliest, row, self._decoder.ends, config.max_new_tokens)
        one.unread = (likeliest,)
        stops = self._decoder.stops(config)
        if (one.listened or stops) and (piece := grown.advance(self._decoder.text(grown.ids), stops)):
            one.pieces.append(piece)
        if grown.done and row.keep:
            grown.kv = Activation(row.whole(grown.ids)[: one.text.length], self._pages.whole(one.text))
        one.ended = grown.done  # last: whoever waits goes on with what there is then
        if one.ended or one.pieces:
            one.news.set()


def _turn(going: Sequence[_Generation], most: int) -> list[tuple[_Generation, int]]:
    """Who is read next, and how many tokens of each: of every answer that grows one; of prompts at most so many that
    the answers do not wait long, a half of them of the prompt that has waited longest, then of the shortest."""
    turn = [(one, 1) for one in going if len(one.unread) == 1 and not one.over]
    prompts = [one for one in going if len(one.unread) > 1 and not one.over]
    left = most if turn else max(ALONE_TOKENS, most)
    if prompts:
        oldest, *others = prompts
        others.sort(key=lambda one: len(one.unread))
        tokens = min(len(oldest.unread), max(left // 2, left - sum(len(one.unread) for one in others)))
        for one in (oldest, *others):
            tokens = tokens if one is oldest else min(len(one.unread), left)
            if tokens:
                turn.append((one, tokens))
                left -= tokens
    return sorted(turn, key=lambda pair: pair[0].place)
