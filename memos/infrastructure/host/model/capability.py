"""Measures on random tokens what one model's KV can be used for, at first use; never goes by its name.

An architecture that nobody has tried falls on the safe side by itself: what its logits do not confirm is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from memos.errors import Unsupported
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.kv.compose import Motion, compose, find_motion, mask_of, renewal_inputs, starts
from memos.infrastructure.host.model.decode import DecodeRow, prefill_inputs

_HEAD, _PIECE, _PIECES, _QUERY, _MOVE = 6, 13, 3, 8, 29  # tokens of the texts that are tried
# Largest |logit difference| that counts as rounding, as a share of the largest logit (or 1, if that is more).
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Capability:
    """A verdict. exact: a prefix can be cached; motion: caches can be composed; renewal: rows can be computed anew;
    batches: caches before questions of different lengths can share a forward.

    limit: tokens of prompt up to which this holds, None for the whole context; renewal_limit: the same for renewal,
    whose mask was tried within the sliding window only. differences: the largest |logit difference| of each trial.
    why: the reasons for what is refused.
    """

    exact: bool = False
    motion: Motion | None = None
    renewal: bool = False
    batches: bool = False
    limit: int | None = None
    renewal_limit: int | None = None
    differences: tuple[tuple[str, float], ...] = ()
    why: str = ""

    @property
    def composable(self) -> bool:
        return self.motion is not None

    @property
    def verdict(self) -> str:
        """exact, composable or refused; with the reason for what is not there."""
        name = "composable" if self.composable else "exact" if self.exact else "refused"
        return f"{name}: {self.why}" if self.why else name


@torch.inference_mode()
def examine(model: PreTrainedModel) -> Capability:
    """Try each use on random tokens against the model's plain forward. Never raises for what a model cannot do."""
    trial, limit = _Trial(model), limit_of(model.config)
    exact = trial.holds("an exact prefix", trial.prefix)
    composable = exact and trial.holds("composition", trial.composition)
    renewal = composable and trial.holds("recomputing rows", trial.renewal)
    batches = exact and trial.holds("a batch of different questions", trial.batch)
    if exact and not batches:
        trial.why.pop()  # nothing is refused: such requests go one by one
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    tokens_tried = len(trial.memory) + len(trial.query)
    if limit:
        trial.why.append(f"up to {limit} tokens, where its positions begin to be computed otherwise")
    return Capability(
        exact=exact,
        motion=trial.motion if composable else None,
        renewal=renewal,
        batches=batches,
        limit=limit,
        renewal_limit=window if window and window >= tokens_tried else None,
        differences=tuple(trial.differences),
        why="; ".join(trial.why),
    )


def limit_of(config: PreTrainedConfig) -> int | None:
    """Tokens after which a longer text changes what was computed for a shorter one; None if it never does.

    Dynamic NTK (from one token earlier, after a longer text) and longrope change their frequencies at the original
    context, and so does a scaling of queries by position; chunked attention changes at a chunk.
    """
    config = config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    limits = [
        (part.get("original_max_position_embeddings") or config.max_position_embeddings)
        - (part.get("rope_type") == "dynamic")
        for part in nested
        if part.get("rope_type") in ("dynamic", "longrope") or part.get("llama_4_scaling_beta")
    ]
    if chunk := getattr(config, "attention_chunk_size", None):
        limits.append(chunk)
    return min(limits, default=None)


def has_experts(model: PreTrainedModel) -> bool:
    """True if tokens are routed to experts, so that the rows of a batch share these."""
    config = model.config.get_text_config()
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))


class _Trial:
    """Random texts, and each use of their KV as a difference from the plain forward."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.largest = model, 0.0  # the largest |logit| so far
        self.motion: Motion | None = None
        self.differences, self.why = list[tuple[str, float]](), list[str]()  # see `Capability`
        draw = torch.Generator().manual_seed(0)
        vocabulary = model.config.get_text_config().vocab_size
        lengths = (_HEAD, *[_PIECE + 2 * n for n in range(_PIECES)], _QUERY)
        low = min(10, vocabulary // 2)  # special tokens are usually the first
        texts = [torch.randint(low, vocabulary, (n,), generator=draw).tolist() for n in lengths]
        self.head, *self.pieces, self.query = texts
        self.memory = [i for text in (self.head, *self.pieces) for i in text]

    def holds(self, use: str, difference: Callable[[], float]) -> bool:
        """True if the model can be used so; else `why` says what is wrong."""
        kind = self.model.config.model_type
        try:
            measured = difference()
        except Unsupported as error:
            self.why.append(str(error))
            return False
        # whatever a foreign model's code raises at what is tried says that it cannot do it
        except Exception as error:
            self.why.append(f"{use} fails in {kind}: {type(error).__name__}: {str(error)[:160]}")
            return False
        self.differences.append((use, measured))
        if math.isfinite(measured) and measured <= TOLERANCE.get(self.model.dtype, 1e-4) * max(1.0, self.largest):
            return True
        self.why.append(f"{use} is not right in {kind}: logits differ by {measured:.2g}")
        return False

    def prefix(self) -> float:
        return self._difference(self._over(encode(self.model, self.memory)), self._full())

    def composition(self) -> float:
        moved = self.head + self.pieces[0]
        here, there = encode(self.model, moved), encode(self.model, moved, _MOVE)
        self.motion = motion = find_motion(self.model, here.layers, there.layers, _MOVE)
        composed = compose(self._encoded(), len(self.head), motion)
        return self._difference(self._over(composed), self._block_diagonal())

    def renewal(self) -> float:
        assert self.motion
        composed = compose(self._encoded(), len(self.head), self.motion)
        rows = range(len(self.head), len(composed.ids))
        out = self.model(**renewal_inputs(self.model, composed, rows, self.query), use_cache=True)
        return self._difference(out.logits[:, -len(self.query) :], self._full())

    def batch(self) -> float:
        """Two rows over the same KV, the second with half the question, against each alone."""
        kv = encode(self.model, self.memory)
        rows = [DecodeRow(tuple(self.query), kv), DecodeRow(tuple(self.query[: _QUERY // 2]), kv)]
        together = self.model(**prefill_inputs(self.model, rows, 0)[0], use_cache=True).logits[:, -1]
        alone = [self.model(**prefill_inputs(self.model, [r], 0)[0], use_cache=True).logits[0, -1] for r in rows]
        return self._difference(together, torch.stack(alone))

    def _encoded(self) -> list[Activation]:
        return [encode(self.model, self.head + piece) for piece in self.pieces]

    def _over(self, kv: Activation) -> torch.Tensor:
        """Logits of the query over KV, as a request reads it."""
        inputs, _ = prefill_inputs(self.model, [DecodeRow(tuple(self.query), kv)], 0)
        logits: torch.Tensor = self.model(**inputs, use_cache=True).logits
        return logits

    def _full(self) -> torch.Tensor:
        """Logits of the query in one plain forward of the whole text."""
        ids = torch.tensor([self.memory + self.query], device=self.model.device)
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
            position_ids=place[None],
            attention_mask=mask_of(self.model, visible, place, place),
            use_cache=False,
        )
        logits: torch.Tensor = out.logits[:, -len(self.query) :]
        return logits

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

    def _difference(self, one: torch.Tensor, other: torch.Tensor) -> float:
        """The largest |logit difference|, infinite where not the same logits are finite (some models mask a few)."""
        finite = other.abs() < torch.finfo(other.dtype).max / 2  # False for inf and NaN too
        if not finite.any() or not torch.equal(finite, one.abs() < torch.finfo(one.dtype).max / 2):
            return float("inf")
        self.largest = max(self.largest, float(other[finite].abs().max()))
        return float((one[finite].float() - other[finite].float()).abs().max())


_FIRST, _QUERIES = 1000, 1001  # owners beside the numbers of later pieces
