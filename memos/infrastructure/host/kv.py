"""KV caches as memory: encode once, use often, never change. Knows tensors; knows no cubes.

Shapes: keys and values are [1, kv_heads, tokens, head_dim] a layer, as transformers caches them
(keys rotated to the positions they were encoded at, 0 … tokens-1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from memos.errors import Unsupported


@dataclass(frozen=True)
class Activation:
    """The KV cache of one prefix. Frozen: requests fork it and append to their fork."""

    ids: tuple[int, ...]
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for layer in self.layers for t in layer)

    def digest(self) -> str:
        """XXH3 (128 bit) over the ids and all keys and values: tells any accidental change, at the rate of memory."""
        digest = xxhash.xxh3_128(json.dumps(self.ids).encode())
        for layer in self.layers:
            for tensor in layer:
                digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
                digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def upto(self, tokens: int) -> Activation:
        """The prefix of so many tokens, as a view."""
        return Activation(self.ids[:tokens], tuple((k[..., :tokens, :], v[..., :tokens, :]) for k, v in self.layers))

    def on(self, device: str | torch.device) -> Activation:
        """The same tensors on another device; in page-locked memory where they leave a GPU, to come back faster."""
        target = torch.device(device)

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_cuda and target.type == "cpu":
                return tensor.cpu().pin_memory()
            return tensor.to(target, non_blocking=True)

        return Activation(self.ids, tuple((moved(k), moved(v)) for k, v in self.layers))

    def fork(self) -> DynamicCache:
        """A cache for one request that shares the tensors; appending concatenates into new ones."""
        return cache_of(self.layers)


def cache_of(layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> DynamicCache:
    """A transformers cache over the given keys and values, without a copy."""
    cache = DynamicCache()
    for keys, values in layers:
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def fresh_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache that keeps keys and values of every token.

    Layers with a sliding window would throw away what has left it; kept whole, the model's own mask hides it, and
    a prefix of the cache stays exact. Raises Unsupported, naming the layer, where a layer keeps anything else.
    """
    kinds = [type(layer) for layer in DynamicCache(config=model.config).layers]
    for n, kind in enumerate(kinds):
        if kind not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise Unsupported(
                f"{model.config.model_type} keeps layer {n} as {kind.__name__}, not as keys and values of every "
                f"token; its memories can be plaintext or parametric"
            )
    return DynamicCache()


@torch.inference_mode()
def encode(model: PreTrainedModel, ids: Sequence[int], start: int = 0) -> Activation:
    """Run the ids once, the first at position `start`, and keep their keys and values. Raises Unsupported."""
    row = torch.tensor([list(ids)], device=model.device)
    positions = torch.arange(start, start + len(ids), device=model.device)[None]
    out = model(
        input_ids=row,
        position_ids=positions,
        attention_mask=torch.ones_like(row),  # without one, positions may be read as several packed texts
        past_key_values=fresh_cache(model),
        use_cache=True,
        logits_to_keep=1,
    )
    cache = getattr(out, "past_key_values", None)  # a pure state space model has none
    layers: Any = tuple(
        (getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in getattr(cache, "layers", ())
    )
    for n, (keys, values) in enumerate(layers):
        if keys is None or values is None or keys.shape[-2] != len(ids):
            raise Unsupported(
                f"{model.config.model_type} keeps no keys and values of every token in layer {n}; its memories can be "
                f"plaintext or parametric"
            )
    if not layers:
        raise Unsupported(
            f"{model.config.model_type} returned no KV cache; its memories can be plaintext or parametric"
        )
    require_finite(model, layers)
    return Activation(tuple(ids), layers)


def require_finite(model: PreTrainedModel, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Raises Unsupported."""
    if not all(torch.isfinite(t).all() for layer in layers for t in layer):
        raise Unsupported(
            f"{model.config.model_type} produced keys or values that are not finite in {model.dtype}; try another dtype"
        )
