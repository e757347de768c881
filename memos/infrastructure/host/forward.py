"""The interface of a causal language model that memos uses: one forward over tokens, with or without KV."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import signature
from typing import Any, Protocol, TypedDict
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache


class Inputs(TypedDict, total=False):
    """Arguments of one forward. B rows of T new tokens after P cached ones."""

    input_ids: torch.Tensor  # [B, T]
    position_ids: torch.Tensor  # [B, T]
    attention_mask: torch.Tensor | dict[str, torch.Tensor]  # [B, P + T]; or 4-D and additive, for each layer type
    past_key_values: Cache


class Forward(Protocol):
    """What a forward returns."""

    logits: torch.Tensor  # [B, tokens kept, vocabulary]
    past_key_values: Cache | None


class Forwards(Protocol):
    """A module whose every forward comes with the same adapters, or after the same KV cache."""

    def __call__(self, **inputs: object) -> Forward: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]: ...


class CausalLM(Forwards, Protocol):
    """A transformers model, or one with adapters beside its layers."""

    @property
    def config(self) -> PreTrainedConfig: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...


# Classes of models that forget their state where they read several tokens after it at once (Mamba, Jamba).
forgetful: WeakSet[type[torch.nn.Module]] = WeakSet()


def forward(model: Forwards, inputs: Inputs, keep: int = 0) -> Forward:
    """One forward that caches what it reads; keep: of so many last tokens there are logits, 0: of all."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    tokens = ids.shape[1]
    named: dict[str, object] = {**inputs}
    kind: Any = type(next(iter(model.named_modules()))[1])  # under adapters too
    if isinstance(mask, torch.Tensor):
        past = mask.shape[-1] - tokens
        if past and tokens > 1 and kind in forgetful:
            each = [
                forward(model, {**inputs, "input_ids": one, "position_ids": position, "attention_mask": mask[:, :end]})
                for end, (one, position) in enumerate(
                    zip(ids.split(1, 1), inputs["position_ids"].split(1, 1), strict=True), start=past + 1
                )
            ]
            each[-1].logits = torch.cat([out.logits for out in each[-keep:]], 1)
            return each[-1]
        if _is_pure(kind):  # its mask is of the new tokens
            named |= {"cache_params": named.pop("past_key_values", None), "attention_mask": mask[:, -tokens:]}
    out = model(**named, use_cache=True, logits_to_keep=keep)
    if _is_pure(kind):
        out.past_key_values = getattr(out, "cache_params", None)
    return out


@cache
def _is_pure(kind: type[Any]) -> bool:
    """True of a model of state spaces alone, which calls its cache by another name."""
    return "cache_params" in signature(kind.forward).parameters


_first_positions: WeakKeyDictionary[object, int] = WeakKeyDictionary()


def first_position(model: Forwards) -> int:
    """The position of a text's first token: 0, or what follows the padding in a table of positions that has a row for
    it, as RoBERTa's."""
    if model not in _first_positions:
        tables = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Embedding) and "position" in name]
        _first_positions[model] = max((t.padding_idx + 1 for t in tables if t.padding_idx is not None), default=0)
    return _first_positions[model]


def positions_of(model: CausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """The positions of tokens that stand there in a text, counted from 0: of the same shape, on the model's device."""
    return (tokens + first_position(model)).to(model.device)
