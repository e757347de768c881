"""Trained KV: few rows of keys and values that stand for many tokens of memory; knows tensors, no cubes.

The middle way between KV and an adapter (Cartridges, 2506.06266): some rows of the real cache, trained until the model
answers over them as it answers over the text. Rows keep the places that their tokens had, and what follows is numbered
as in the full prompt; so they serve like any other KV, in any batch, which peft's CARTRIDGE, a model of its own whose
text begins right after its rows, does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from memos.infrastructure.host.forward import Forward
from memos.infrastructure.host.kv.cache import Activation, Layer, cache_of


def kept_rows(tokens: int, head: int, share: float) -> list[int]:
    """Of a cache of so many tokens: all of its head, and an even `share` of the others, the last among them."""
    own = tokens - head
    count = max(1, math.ceil(share * own))
    return [*range(head), *(head + own * (n + 1) // count - 1 for n in range(count))]


class Cartridge(torch.nn.Module):
    """A model whose every forward comes after a KV cache; with `train`, its rows after the head are parameters.

    The model is not changed, and is no part of this module's parameters.
    """

    def __init__(self, model: PreTrainedModel, past: Activation, head: int = 0, train: bool = False) -> None:
        super().__init__()
        self._model, self._past, self._head = (model,), past, head
        self.rows = torch.nn.ParameterList(
            torch.nn.Parameter(tensor[..., head:, :].detach().float().clone(), requires_grad=train)
            for layer in past.layers
            for tensor in layer
        )

    def _layers(self) -> list[Layer]:
        fixed = [(k[..., : self._head, :], v[..., : self._head, :]) for k, v in self._past.layers]
        return [
            (
                torch.cat([k, self.rows[2 * n].to(k.dtype)], -2),
                torch.cat([v, self.rows[2 * n + 1].to(v.dtype)], -2),
            )
            for n, (k, v) in enumerate(fixed)
        ]

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, **more: object
    ) -> Forward:
        """input_ids, attention_mask, position_ids: [rows, tokens] of what comes after the cache."""
        batch = len(input_ids)
        layers = [(k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in self._layers()]
        there = attention_mask.new_ones(batch, self._past.rows)
        forward: Forward = self._model[0](
            input_ids=input_ids,
            attention_mask=torch.cat([there, attention_mask], 1),
            position_ids=position_ids + len(self._past.ids),
            past_key_values=cache_of(layers),
            **more | {"use_cache": True},
        )
        return forward

    @torch.no_grad()
    def activation(self) -> Activation:
        """The rows as they are now."""
        return replace(self._past, layers=tuple(self._layers()))


def thinned(whole: Activation, rows: Sequence[int]) -> Activation:
    """Just these rows of a cache, standing for all of its tokens."""
    index = torch.tensor(rows, device=whole.layers[0][0].device)
    layers = tuple((k.index_select(-2, index), v.index_select(-2, index)) for k, v in whole.layers)
    return replace(whole, layers=layers, trained=len(rows))
