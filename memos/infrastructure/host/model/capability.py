"""Measures on random tokens what one model's KV can be used for, at first use; never goes by its name.

An architecture that nobody has tried falls on the safe side by itself: what its logits do not confirm is refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from memos.errors import Unsupported
from memos.infrastructure.host.forward import forgetful, forward, positions_of
from memos.infrastructure.host.kv.cache import Activation, Layer, encode
from memos.infrastructure.host.kv.compose import Motion, compose, find_motion, mask_of, renewal_inputs, starts
from memos.infrastructure.host.model import decode
from memos.infrastructure.host.model.load import as_loaded
from memos.infrastructure.host.model.packed import PackedText, Pages, packed_forward

log = logging.getLogger("memos")
_HEAD, _PIECE, _PIECES, _QUERY, _MOVE = 6, 13, 3, 8, 29  # tokens of the texts that are tried
_SHORTER = (0, 4, 7, 12, 17)  # by so many tokens are the rows of a batch shorter: a window or chunk may begin in any
_FARTHEST = 4096  # tokens that a text is moved by at most, to tell frequencies
_NARROW = 16  # tokens of a window that is tried: fewer than those of the texts


@dataclass(frozen=True)
class Capability:
    """A verdict. exact: a prefix can be cached; motion: caches can be composed; renewal: rows can be computed anew;
    batches: rows of different lengths can share a forward.

    limit: tokens of prompt up to which KV holds, None for the whole context; motion_limit: the same of KV that is
    moved. windowed: some layers look back through a window; states: some keep a state. differences: the largest |logit
    difference| of each trial. why: the reasons for what is refused.
    """

    exact: bool = False
    motion: Motion | None = None
    renewal: bool = False
    batches: bool = False
    limit: int | None = None
    motion_limit: int | None = None
    windowed: bool = False
    states: bool = False
    differences: tuple[tuple[str, float], ...] = ()
    why: str = ""

    @property
    def composable(self) -> bool:
        return self.motion is not None


@torch.inference_mode()
def examine(model: PreTrainedModel) -> Capability:
    """Try each use on random tokens against the model's plain forward. Never raises for what a model cannot do.

    A model that is not too large is tried in fp32, for what it computes does not depend on its dtype; but a table of
    sines that was rounded with the model turns by a rotation in that dtype only.
    """
    precise = decode.in_full_precision(model)
    can = _examined(precise)
    if can.composable or precise is model:
        return can
    rounded = _examined(model)
    return rounded if rounded.composable else can


def _examined(model: PreTrainedModel) -> Capability:
    """Texts of a trial are short, so a wide window is made narrow first, in a twin of the model."""
    limit, motion_limit = limit_of(model.config), motion_limit_of(model.config)
    trial = _Trial(model)
    exact = trial.holds("an exact prefix", trial.prefix)
    if exact and trial.narrow("sliding_window"):
        exact = trial.holds("an exact prefix beyond the window", trial.prefix)
    composable = exact and trial.holds("composition", trial.composition)
    renewal = composable and trial.holds("recomputing rows", trial.renewal)
    refused = tuple(trial.why)
    trial.narrow("attention_chunk_size")
    batches = trial.holds("a batch of different texts", trial.batch)  # else such requests go one by one
    if exact and batches and not trial.states:  # over a state, each goes alone
        batches = trial.holds("a batch of different questions", trial.batch_over_kv)
    why = list(refused)
    for what, tokens in (("", limit and limit.tokens), ("moved ", motion_limit if composable else None)):
        if exact and tokens:
            why.append(f"{what}up to {tokens} tokens, beyond which it computes otherwise")
    return Capability(
        exact=exact,
        motion=trial.motion if composable else None,
        renewal=renewal,
        batches=batches,
        limit=limit.tokens if limit else None,
        motion_limit=motion_limit,
        windowed=any(getattr(model.config.get_text_config(), name, None) for name in _WINDOWS),
        states=trial.states,
        differences=tuple(trial.differences),
        why="; ".join(why),
    )


_WINDOWS = ("sliding_window", "attention_chunk_size")  # in a config: tokens


def limit_of(config: PreTrainedConfig) -> decode.Limit | None:
    """Where a longer text changes what was computed for a shorter one; None if it never does.

    Dynamic NTK (from one token earlier, after a longer text) and longrope change their frequencies at the original
    context; beyond a window that keeps the keys of most weight (Doge's), those depend on what comes after.
    """
    limits = [
        decode.Limit(original - 1, every=True) if kind == "dynamic" else decode.Limit(original)
        for kind, original, _ in _ropes(config)
        if kind in ("dynamic", "longrope")
    ]
    if window := getattr(config.get_text_config(), "keep_window_size", None):
        limits.append(decode.Limit(window, every=True))
    return min(limits, key=lambda limit: limit.tokens, default=None)


def motion_limit_of(config: PreTrainedConfig) -> int | None:
    """Tokens beyond which text that is moved was computed otherwise than where it stands then: chunks of attention
    begin, or queries are scaled by their position."""
    limits = [original for _, original, rope in _ropes(config) if rope.get("llama_4_scaling_beta")]
    if chunk := getattr(config.get_text_config(), "attention_chunk_size", None):
        limits.append(chunk)
    return min(limits, default=None)


def _ropes(config: PreTrainedConfig) -> list[tuple[str, int, dict[str, Any]]]:
    """Each kind of rotary positions: its name, its original context in tokens, its parameters."""
    config = config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    longest = getattr(config, "max_position_embeddings", 0)
    return [(str(one.get("rope_type")), one.get("original_max_position_embeddings", longest), one) for one in nested]


def has_experts(model: PreTrainedModel) -> bool:
    """True if tokens are routed to experts, so that the rows of a batch share these."""
    config = model.config.get_text_config()
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))


class _Trial:
    """Random texts, and each use of their KV as a difference from the plain forward."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.largest = model, 0.0  # the largest |logit| so far
        self.motion: Motion | None = None
        self.states = False  # whether it keeps any
        self.differences, self.why = list[tuple[str, float]](), list[str]()  # see `Capability`
        draw = torch.Generator().manual_seed(0)
        vocabulary = model.config.get_text_config().vocab_size
        lengths = (_HEAD, *[_PIECE + 2 * n for n in range(_PIECES)], _QUERY)
        low = min(10, vocabulary // 2)  # special tokens are usually the first
        texts = [torch.randint(low, vocabulary, (n,), generator=draw).tolist() for n in lengths]
        self.head, *self.pieces, self.query = texts
        self.memory = [i for text in (self.head, *self.pieces) for i in text]

    def narrow(self, name: str) -> bool:
        """Try from here on with windows of that name narrower than the texts; False if there is none that is wider."""
        before, self.model = self.model, decode.narrowed(self.model, name, _NARROW)
        return self.model is not before

    def holds(self, use: str, difference: Callable[[], float]) -> bool:
        """True if the model can be used so; else `why` says what is wrong."""
        kind = self.model.config.model_type
        try:
            measured = difference()
        except Unsupported as error:
            why = str(error)
        # whatever a foreign model's code raises at what is tried says that it cannot do it
        except Exception as error:
            why = f"{use} fails in {kind}: {type(error).__name__}: {str(error)[:160]}"
        else:
            self.differences.append((use, measured))
            if self._is_rounding(measured):
                return True
            why = f"{use} is not right in {kind}: logits differ by {measured:.2g}"
        self.why.append(why)
        return False

    def prefix(self) -> float:
        kv, full = encode(self.model, self.memory), self._full()
        self.states = kv.states
        difference = self._difference(self._over(kv), full)
        if kv.states and not self._is_rounding(difference):  # it may be right where tokens are read one by one
            forgetful.add(type(self.model))
            difference = self._difference(self._over(kv), full)
        return difference

    def composition(self) -> float:
        if self.states:
            raise Unsupported(f"{self.model.config.model_type} keeps a state, which holds behind its own text only")
        moved = self.head + self.pieces[0]

        @cache
        def encoded(start: int) -> Sequence[Layer]:
            return encode(self.model, moved, start).layers

        limit, context = limit_of(self.model.config), decode.context_of(self.model)
        ends = (limit and limit.tokens, motion_limit_of(self.model.config), context, _FARTHEST)
        farthest = max(1, min(end for end in ends if end) - len(moved))
        self.motion = motion = find_motion(self.model, encoded, _MOVE, farthest)
        composed = compose(self._encoded(), len(self.head), motion)
        return self._difference(self._over(composed), self._block_diagonal())

    def renewal(self) -> float:
        assert self.motion
        composed = compose(self._encoded(), len(self.head), self.motion)
        rows = range(len(self.head), len(composed.ids))
        out = forward(self.model, renewal_inputs(self.model, composed, rows, self.query))
        return self._difference(out.logits[:, -len(self.query) :], self._full())

    def batch(self) -> float:
        """Texts of different lengths and what follows them, against each alone."""
        whole = (*self.memory, *self.query)
        return self._together([decode.DecodeRow(whole[: len(whole) - n]) for n in _SHORTER])

    def batch_over_kv(self) -> float:
        """The same of rows over KV of different lengths, with questions of different lengths."""
        pasts = [encode(self.model, self.memory[: len(self.memory) - n]) for n in _SHORTER]
        asks = zip((_QUERY, 1, 3, 5, 2), pasts, strict=True)
        return self._together([decode.DecodeRow(tuple(self.query[:n]), past) for n, past in asks])

    def _together(self, rows: Sequence[decode.DecodeRow]) -> float:
        """The largest difference of a batch, over its prompts and a token after them, from each row alone."""
        both = self._two_steps(rows)
        return max(self._difference(both[:, n], self._two_steps([row])[:, 0]) for n, row in enumerate(rows))

    def _two_steps(self, rows: Sequence[decode.DecodeRow]) -> torch.Tensor:
        """[2, rows, vocabulary]"""
        step, mask = decode.prefill_inputs(self.model, rows, 0)
        first = forward(self.model, step)
        step, _ = decode.step_inputs(self.model, first, step, mask, self.query[-1:] * len(rows))
        second = forward(self.model, step)
        return torch.stack([first.logits[:, -1], second.logits[:, -1]])

    def _encoded(self) -> list[Activation]:
        return [encode(self.model, self.head + piece) for piece in self.pieces]

    def _over(self, kv: Activation) -> torch.Tensor:
        """Logits of the query over KV, as a request reads it."""
        inputs, _ = decode.prefill_inputs(self.model, [decode.DecodeRow(tuple(self.query), kv)], 0)
        return forward(self.model, inputs).logits

    def _full(self) -> torch.Tensor:
        """Logits of the query in one plain forward of the whole text."""
        ids = torch.tensor([self.memory + self.query], device=self.model.device)
        with as_loaded(self.model):
            logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits[:, -len(self.query) :]
        return logits

    def _block_diagonal(self) -> torch.Tensor:
        """Logits of the query in one forward where no piece sees another."""
        ids, positions, owners = self._layout()
        device = self.model.device
        place, who = torch.tensor(positions, device=device), torch.tensor(owners, device=device)
        asks, seen = who[:, None], who[None]
        first = (seen == 0) & ((asks == 0) | (asks == _FIRST) | (asks == _QUERIES))
        visible = first | (asks == seen) | ((asks > 0) & (asks < _FIRST) & (seen == -asks))
        visible |= (asks == _QUERIES) & (seen > 0)
        order = torch.arange(len(ids), device=device)
        visible &= order[None] <= order[:, None]
        out = self.model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=positions_of(self.model, place)[None],
            attention_mask=mask_of(self.model, visible, place, place),
            use_cache=False,
        )
        return out.logits[:, -len(self.query) :]

    def _layout(self) -> tuple[list[int], list[int], list[int]]:
        """Ids of head, pieces and query, their positions, and whose each is.

        Each later piece has a copy of the head of its own right before it, as when it was encoded; the query sees
        the first head only.
        """
        ids, positions, owners = list(self.head), list(range(len(self.head))), [0] * len(self.head)
        lengths = [Activation(tuple(self.head + piece), ()) for piece in self.pieces]
        for n, (piece, start) in enumerate(zip(self.pieces, starts(lengths, len(self.head)), strict=True)):
            if n:
                ids += self.head
                positions += range(start - len(self.head), start)
                owners += [-n] * len(self.head)  # a copy of the head, seen by this piece only
            ids += piece
            positions += range(start, start + len(piece))
            owners += [n or _FIRST] * len(piece)
        end = positions[-1] + 1
        positions += range(end, end + len(self.query))
        return ids + self.query, positions, owners + [_QUERIES] * len(self.query)

    def _is_rounding(self, difference: float) -> bool:
        return math.isfinite(difference) and difference <= decode.rounding(self.model.dtype, self.largest)

    def _difference(self, one: torch.Tensor, other: torch.Tensor) -> float:
        """The largest |logit difference|, infinite where not the same logits are finite (some models mask a few)."""
        finite = other.abs() < torch.finfo(other.dtype).max / 2  # False for inf and NaN too
        if not finite.any() or not torch.equal(finite, one.abs() < torch.finfo(one.dtype).max / 2):
            return float("inf")
        self.largest = max(self.largest, float(other[finite].abs().max()))
        return float((one[finite].float() - other[finite].float()).abs().max())


_FIRST, _QUERIES = 1000, 1001  # owners beside the numbers of later pieces


@torch.inference_mode()
def packs(model: PreTrainedModel) -> bool:
    """True if texts that share a forward are read as each alone, up to rounding, over KV, in pieces and beyond a
    window or chunk too. Never raises for what a model cannot do."""
    model = decode.in_full_precision(model)
    for window in _WINDOWS:
        model = decode.narrowed(model, window, _NARROW)
    vocabulary = model.config.get_text_config().vocab_size
    drawn = torch.randint(min(10, vocabulary // 2), vocabulary, (60,), generator=torch.Generator().manual_seed(0))
    ids = tuple(drawn.tolist())
    try:
        kv = encode(model, ids[:12])
        pasts, ends = (kv, kv, None, kv.upto(7)), ((17, 20, 21), (14, 15, 35), (23, 24, 50), (8, 9, 10))
        texts, reads = [PackedText(past) for past in pasts], [past.rows if past else 0 for past in pasts]
        pages = Pages()
        for step in zip(*ends, strict=True):
            logits = packed_forward(model, pages, texts, [ids[read:end] for read, end in zip(reads, step, strict=True)])
            for mine, end in zip(logits.float(), step, strict=True):
                with as_loaded(model):
                    whole = model(input_ids=torch.tensor([ids[:end]], device=model.device)).logits[0, -1].float()
                if not torch.allclose(mine, whole, rtol=0, atol=decode.rounding(model.dtype, whole)):
                    return False
            reads = list(step)
    except Exception as error:  # whatever a foreign model's code raises at what is tried says that it cannot do it
        log.info("requests to %s are answered one at a time: %s", model.config.model_type, error)
        return False
    return True
