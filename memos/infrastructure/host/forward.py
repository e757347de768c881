"""The interface of a causal language model that memos uses: one forward over tokens, with or without KV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypedDict
from weakref import WeakKeyDictionary

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
