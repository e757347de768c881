"""The interface of a causal language model that memos uses: one forward over tokens, with or without KV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypedDict

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


class CausalLM(Forwards, Protocol):
    """A transformers model, or one with adapters beside its layers."""

    @property
    def config(self) -> PreTrainedConfig: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
