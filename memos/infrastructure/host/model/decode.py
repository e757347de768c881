"""Turns prompts into answers: one prefill, then greedy, sampled or beam decoding with explicit positions.

Knows tensors and sampling; knows no memories. A row may begin with a KV cache that was encoded before.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from memos.config import DecodeConfig
from memos.cost import spent
from memos.errors import ContextOverflow, Unsupported
from memos.infrastructure.host.adapters.lora import twin
from memos.infrastructure.host.forward import CausalLM, Forward, Inputs, first_position, forward, positions_of
from memos.infrastructure.host.kv.cache import Activation, cache_of, cached_layers, fresh_cache
from memos.infrastructure.host.kv.compose import renewal_inputs
from memos.infrastructure.host.model.beam import BeamSearch
from memos.infrastructure.host.model.constrained import Constraint
from memos.lazy import Lazy

log = logging.getLogger("memos")
Returned = TypeVar("Returned")
MIN_SAMPLING = 1e-6  # of a temperature and of top_p; what is smaller may be 0 in fp32
# Largest |logit difference| that counts as rounding, as a share of the largest logit (or 1, if that is more).
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Limit:
    """Tokens of a text beyond which a model computes all of it otherwise, so that KV of a shorter text is wrong; every:
    with each further token anew."""

    tokens: int
    every: bool = False


@dataclass(frozen=True)
class DecodeRow:
    """One request as the model sees it: a cache of the first tokens (or none), and the ids that follow.

    renewed: rows of the cache that are computed anew with the ids; keep: the KV of all that was read is wanted then.
    Such a row has a batch of its own. private: nobody else has the cache. constraint: of the answer; not with beams.
    """

    ids: tuple[int, ...]
    past: Activation | None = None
    renewed: tuple[int, ...] = ()
    keep: bool = False
    private: bool = False
    constraint: Constraint | None = field(default=None, repr=False)

    @property
    def past_length(self) -> int:
        """Tokens that the cache stands for, those of pictures too."""
        return self.past.next_position if self.past else 0

    def whole(self, answer: Sequence[int]) -> tuple[int, ...]:
        """The ids of all of it, and of an answer."""
        return (*(self.past.ids if self.past else ()), *self.ids, *answer)


@dataclass(frozen=True)
class ModelAnswer:
    """An answer, and what it cost."""

    text: str
    ids: tuple[int, ...]
    prompt_tokens: int  # tokens that went through the model before the answer
    past_tokens: int  # tokens that were there as KV
    ttft_s: float  # start of the request to its first token
    seconds: float
    kv: Activation | None = field(default=None, repr=False)  # of a row to keep: the prompt, and what was read since


@dataclass
class Growing:
    """One row's answer as it grows."""

    generator: torch.Generator
    ids: list[int] = field(default_factory=list)
    done: bool = False
    kv: Activation | None = None
    given: int = 0  # characters handed out

    def take(self, token: int, row: DecodeRow, ends: Collection[int], most: int) -> None:
        """The next token of at most so many, which may be one that ends the answer."""
        self.done = self.done or token in ends
        if not self.done:
            self.ids.append(token)
            if row.constraint:
                row.constraint.take(token)
            self.done = len(self.ids) >= most

    def advance(self, text: str, stops: Sequence[str]) -> str:
        """What is new and certain: half a character, and what may yet become a stop string, wait."""
        self.done = self.done or any(stop in text for stop in stops)
        text = _cut(text, stops)
        if not self.done:
            may_stop = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
            text = text[: len(text) - max(may_stop, default=0)]
            text = text[: -len("\ufffd")] if text.endswith("\ufffd") else text
        piece, self.given = text[self.given :], max(self.given, len(text))
        return piece


class Decoder:
    """Decodes for one model."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        stop: Sequence[str] = (),
        limit: Limit | None = None,
    ) -> None:
        self._tokenizer, self._stop, self.limit = tokenizer, tuple(stop), limit
        ends = model.generation_config.eos_token_id if model.generation_config else None
        listed = ends if isinstance(ends, list) else [ends]
        self.ends = {i for i in (*listed, tokenizer.eos_token_id) if i is not None}
        self.pad = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)
        self.context = context_of(model)
        self._goes_on = Lazy(lambda: _goes_on(model))

    def complete(
        self, model: CausalLM, rows: Sequence[DecodeRow], config: DecodeConfig, began: float | None = None
    ) -> list[ModelAnswer]:
        """Answers of a batch, each the same as if it were decoded alone; see `stream`."""
        return drained(self.stream(model, rows, config, began))

    def stream(
        self, model: CausalLM, rows: Sequence[DecodeRow], config: DecodeConfig, began: float | None = None
    ) -> Generator[str, None, list[ModelAnswer]]:
        """Yields the new pieces of the answers as these grow; returns the whole answers and their costs.

        With beams an answer is one piece, as another beam may win until the end.
        began: `time.perf_counter()` at the start of the request; now if None.
        Raises ContextOverflow before anything is computed.
        """
        began = time.perf_counter() if began is None else began
        for row in rows:
            self.require_room(row.past_length + len(row.ids), config)
        stops = self.stops(config)
        streams = [Growing(torch.Generator().manual_seed(config.seed)) for _ in rows]
        loop = self._search if config.beams > 1 else self._loop
        first = 0.0
        try:
            for _ in loop(model, rows, config, streams):
                first = first or now(model) - began
                for stream in streams:
                    if piece := stream.advance(self.text(stream.ids), stops):
                        yield piece
        finally:  # an answer that is broken off has cost what there is of it
            spent(len(rows), sum(len(r.ids) + len(r.renewed) + len(s.ids) for s, r in zip(streams, rows, strict=True)))
        seconds = now(model) - began
        return [self.answer(row, s, config, first, seconds) for s, row in zip(streams, rows, strict=True)]

    def answer(self, row: DecodeRow, grown: Growing, config: DecodeConfig, first: float, seconds: float) -> ModelAnswer:
        """What has grown, as a whole; seconds since the request began: until the first token, and until now."""
        return ModelAnswer(
            text=_cut(self.text(grown.ids), self.stops(config)).strip(),
            ids=tuple(grown.ids),
            prompt_tokens=len(row.ids) + len(row.renewed),
            past_tokens=row.past_length - len(row.renewed),
            ttft_s=first,
            seconds=seconds,
            kv=grown.kv,
        )

    def stops(self, config: DecodeConfig) -> tuple[str, ...]:
        """Strings that end an answer."""
        return (*self._stop, *config.stop)

    def require_room(self, prompt: int, config: DecodeConfig) -> None:
        """Raises ContextOverflow if a prompt of so many tokens and its answer do not fit the model's context."""
        answer = config.max_new_tokens
        if self.context and prompt + answer > self.context:
            raise ContextOverflow(
                f"{prompt} tokens of prompt and {answer} of answer do not fit the model's context of {self.context}; "
                f"lower scheduler.prompt_tokens or decode.max_new_tokens, or shorten the question"
            )

    @torch.inference_mode()
    def _loop(
        self, model: CausalLM, rows: Sequence[DecodeRow], config: DecodeConfig, streams: list[Growing]
    ) -> Iterator[None]:
        """Yields after each new token. The last position's logits alone are computed."""
        step, mask = prefill_inputs(model, rows, self.pad)
        keep = not self.crosses(rows[0], config.max_new_tokens)
        for n in range(config.max_new_tokens):
            out = forward(model, step, 1)
            chosen = [
                self.pick(r.constraint.allowed(logits) if r.constraint and not s.done else logits, s.generator, config)
                for logits, r, s in zip(out.logits[:, -1].float().cpu(), rows, streams, strict=True)
            ]
            for stream, row, token in zip(streams, rows, chosen, strict=True):
                stream.take(token, row, self.ends, config.max_new_tokens)
            yield
            if all(s.done for s in streams):
                streams[0].kv = _read_kv(out, rows[0], streams[0].ids) if keep else None
                return
            if self._reads_anew(rows, n + 1):
                so_far = [DecodeRow(row.whole(stream.ids)) for row, stream in zip(rows, streams, strict=True)]
                step, mask = prefill_inputs(model, so_far, self.pad)
            else:
                step, mask = step_inputs(model, out, step, mask, chosen)

    @torch.inference_mode()
    def _search(
        self, model: CausalLM, rows: Sequence[DecodeRow], config: DecodeConfig, streams: list[Growing]
    ) -> Iterator[None]:
        """Yields after each forward, which computes all beams of all rows; an answer is there once it is certain."""
        stops = self.stops(config)

        def stopped(ids: Sequence[int]) -> bool:
            return any(stop in self.text(ids) for stop in stops)

        searches = [BeamSearch(config.beams, config.max_new_tokens, self.ends, stopped) for _ in rows]
        step, mask = prefill_inputs(model, rows, self.pad)
        while True:
            out = forward(model, step, 1)
            streams[0].kv = streams[0].kv or _read_kv(out, rows[0])  # of the prompt: the beams part from here
            log_p = torch.log_softmax(out.logits[:, -1].float(), -1)
            first, parents = 0, list[int]()
            for search, stream in zip(searches, streams, strict=True):
                if width := len(search.running):
                    parents += [first + row for row in search.advance(log_p[first : first + width])]
                    first += width
                if not search.running:
                    stream.ids, stream.done = list(search.finished[0][1]), True
            yield
            if not parents:
                return
            beams = [(row, ids) for row, search in zip(rows, searches, strict=True) for _, ids in search.running]
            if self._reads_anew(rows, len(beams[0][1])):
                step, mask = prefill_inputs(model, [DecodeRow(row.whole(ids)) for row, ids in beams], self.pad)
            else:
                step, mask = step_inputs(model, out, step, mask, [ids[-1] for _, ids in beams], parents)

    def crosses(self, row: DecodeRow, answer: int) -> bool:
        """True if the row and so many tokens of answer may go beyond the limit: it is decoded in a batch of its own."""
        return self.limit is not None and row.past_length + len(row.ids) + answer > self.limit.tokens

    def _reads_anew(self, rows: Sequence[DecodeRow], answered: int) -> bool:
        """True if the forward that reads the last of so many answered tokens needs the whole text."""
        if not self.crosses(rows[0], answered):
            return not self._goes_on()
        assert self.limit and len(rows) == 1
        return self.limit.every or not self.crosses(rows[0], answered - 1)

    @staticmethod
    def pick(logits: torch.Tensor, generator: torch.Generator, config: DecodeConfig) -> int:
        """logits: [vocabulary] on the CPU in fp32. Greedy at temperature 0, else nucleus sampling."""
        if config.temperature == 0:
            return int(logits.argmax())
        p, order = torch.softmax(logits / max(config.temperature, MIN_SAMPLING), -1).sort(descending=True)
        p = p * (p.cumsum(-1) - p < max(config.top_p, MIN_SAMPLING))  # the first token that reaches top_p is kept
        # drawn in token order: rounding, which differs in a batch, may swap nearly equal tokens in the sorted one
        return int(torch.multinomial(torch.zeros_like(p).scatter(0, order, p), 1, generator=generator))

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def context_of(model: PreTrainedModel) -> int | None:
    """Tokens that the model reads at most; None where it has no limit."""
    config = model.config.get_text_config()
    most: int | None = getattr(config, "max_position_embeddings", None) or getattr(config, "max_target_positions", None)
    return most - first_position(model) if most else None


def narrowed(model: PreTrainedModel, name: str, tokens: int) -> PreTrainedModel:
    """A twin whose windows of that name (in its config) have so many tokens; the model itself if it has none wider."""
    if (getattr(model.config.get_text_config(), name, None) or 0) <= tokens:
        return model
    other = twin(model)
    setattr(other.config.get_text_config(), name, tokens)
    for module in other.modules():  # whose own copy some masks are made by
        if getattr(module, name, None):
            setattr(module, name, tokens)
    return other


_COPIED = 600_000_000  # parameters of a model that a copy in fp32 is made of: 2.4 GB


def in_full_precision(model: PreTrainedModel) -> PreTrainedModel:
    """A copy in fp32, to try what a model computes where rounding hides nothing: in bf16 a router takes other experts
    for a difference in the last place. The model itself if it is in fp32, quantised or large."""
    halves = {parameter.dtype for parameter in model.parameters()} <= {torch.bfloat16, torch.float16}
    return copy.deepcopy(model).float() if halves and model.num_parameters() <= _COPIED else model


@torch.inference_mode()
def _goes_on(model: PreTrainedModel) -> bool:
    """True if the model reads a token after its own cache as in the whole text, up to rounding, beyond a window too."""
    ids = tuple(range(10, 20))
    model = narrowed(in_full_precision(model), "sliding_window", len(ids) // 2)
    try:
        step, mask = prefill_inputs(model, [DecodeRow(ids[:-1])], 0)
        step, _ = step_inputs(model, forward(model, step), step, mask, ids[-1:])
        over, whole = forward(model, step), model(input_ids=torch.tensor([ids], device=model.device))
    except Exception as error:  # whatever a foreign model's code raises
        reason = f"{type(error).__name__}: {str(error)[:160]}"
    else:
        right = whole.logits[0, -1].float()
        reason = f"logits differ by {(over.logits[0, -1].float() - right).abs().max():.2g}"
        if torch.allclose(over.logits[0, -1].float(), right, rtol=0, atol=rounding(model.dtype, right)):
            return True
    log.warning(
        "%s does not go on from its own cache (%s): for each token of an answer it reads the whole text, which is slow",
        model.config.model_type,
        reason,
    )
    return False


def rounding(dtype: torch.dtype, largest: torch.Tensor | float) -> float:
    """The |logit difference| that counts as rounding beside logits, or the largest |logit|."""
    most = float(largest.abs().max()) if isinstance(largest, torch.Tensor) else largest
    return TOLERANCE.get(dtype, 1e-4) * max(1.0, most)


def drained(pieces: Generator[object, None, Returned]) -> Returned:
    """What a stream returns at its end; its pieces are dropped."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return done.value


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text up to its first stop string."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def now(model: CausalLM) -> float:
    """Seconds on the clock, once the device has done its work."""
    if next(model.parameters()).device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def prefill_inputs(model: CausalLM, rows: Sequence[DecodeRow], pad: int) -> tuple[Inputs, torch.Tensor]:
    """Arguments of the first forward of a batch, padded on the left, and which of its keys are real: [B, P + T].

    A row lies as [padding, past, padding, ids]; position_ids [B, T] count real tokens only, so padding changes no
    answer.
    """
    device = next(model.parameters()).device
    past, width = max(r.past.rows if r.past else 0 for r in rows), max(len(r.ids) for r in rows)
    if rows[0].renewed:
        (row,) = rows
        assert row.past
        return renewal_inputs(model, row.past, row.renewed, row.ids), torch.ones(1, past + width, device=device).long()
    ids = torch.full((len(rows), width), pad)
    places = torch.zeros(len(rows), width, dtype=torch.long)  # from 0
    mask = torch.zeros(len(rows), past + width, dtype=torch.long)
    for n, row in enumerate(rows):
        ids[n, width - len(row.ids) :] = torch.tensor(row.ids)
        places[n, width - len(row.ids) :] = torch.arange(row.past_length, row.past_length + len(row.ids))
        mask[n, past - (row.past.rows if row.past else 0) : past] = 1
        mask[n, past + width - len(row.ids) :] = 1
    mask = mask.to(device)
    inputs: Inputs = {"input_ids": ids.to(device), "position_ids": positions_of(model, places), "attention_mask": mask}
    cache = _stack([r.past for r in rows], past)
    if cache is None and rows[0].keep:
        cache = fresh_cache(model)
    if cache is not None:
        inputs["past_key_values"] = cache
    return inputs, mask


def step_inputs(
    model: CausalLM, out: Forward, step: Inputs, mask: torch.Tensor, tokens: Sequence[int], parents: Sequence[int] = ()
) -> tuple[Inputs, torch.Tensor]:
    """Arguments of the forward after `step`, which gave `out`: one token a row; and which of its keys are real.

    parents: the row of `step` that each token follows, where the rows are not the same.
    """
    cache, positions = getattr(out, "past_key_values", None), step["position_ids"][:, -1:] + 1
    if cache is None:
        raise Unsupported(f"{type(model).__name__} returns no past_key_values")
    if parents:
        cache.reorder_cache(torch.tensor(parents))  # into new tensors: a memory among them stays as it is
        positions, mask = positions[parents], mask[parents]
    mask = torch.cat([mask, mask.new_ones(len(tokens), 1)], dim=1)
    ids = torch.tensor(tokens, device=mask.device)[:, None]
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask, "past_key_values": cache}, mask


def batches_of(
    rows: Sequence[DecodeRow], decoder: Decoder, answer: int, padded: bool, kinds: Sequence[object] = ()
) -> list[list[int]]:
    """Numbers of rows that can share a forward without changing one another's answers of up to `answer` tokens.

    padded: rows of different lengths may; kinds: only rows of one kind may.
    """
    out: dict[object, list[int]] = {}
    for n, row in enumerate(rows):
        shape = () if padded else (len(row.ids), row.past and row.past.rows)
        weighted = id(row.past) if row.past and row.past.weighted else 0  # is not padded
        key: object = (shape, weighted, kinds[n] if kinds else None)
        # a mask of its own; a state, which padding changes; positions by the longest row
        if row.renewed or row.keep or (row.past and row.past.states) or decoder.crosses(row, answer):
            key = n
        out.setdefault(key, []).append(n)
    return list(out.values())


def _read_kv(out: Forward, row: DecodeRow, answer: Sequence[int] = ()) -> Activation | None:
    """KV of all that the model has read of a row to keep; the last token of its answer has often not been."""
    if not row.keep or out.past_key_values is None:
        return None
    layers = cached_layers(out.past_key_values)
    return Activation(row.whole(answer)[: layers[0][0].shape[-2]], layers)


def _stack(pasts: Sequence[Activation | None], length: int) -> DynamicCache | None:
    """One cache for the batch; a single row shares its tensors, several are padded on the left with zeros."""
    present = [p for p in pasts if p]
    if not present:
        return None
    if len(pasts) == 1 or present[0].weighted:  # which all of them have then: see batches_of
        return present[0].fork(len(pasts))
    layers = []
    for n, model_layer in enumerate(present[0].layers):
        stacked = [t.new_zeros(len(pasts), *t.shape[1:2], length, t.shape[-1]) for t in model_layer]
        for i, activation in enumerate(pasts):
            if activation:
                for target, tensor in zip(stacked, activation.layers[n], strict=True):
                    target[i, :, length - tensor.shape[-2] :] = tensor[0]
        layers.append((stacked[0], stacked[1]))
    return cache_of(layers)
