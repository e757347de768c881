"""The published encoder in NumPy, for a process that reads few texts, and in torch for one that has imported it.

Knows weights and tokens; must not import torch before it is asked for, nor transformers, whose import takes twice as
long as torch's. Its hidden states are those of transformers to 1e-5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from math import erf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memos.infrastructure.host.encoders import weights
from memos.infrastructure.host.threads import multiply_alone, numpy_multiplies_alone
from memos.lazy import Lazy

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
# words [texts, tokens, dim], types and mask [texts, tokens] -> hidden states, as words
Layers = Callable[[Floats, Places, Mask], Floats]
_STEPS = 512  # of one in the table of GELU


class Encoded(NamedTuple):
    """Texts as an encoder reads them. hidden: [texts, tokens, dim]; mask: [texts, tokens], False for padding; places:
    [texts, tokens, 2], the characters [begin, end) of each token, 0 and 0 for special ones."""

    hidden: Floats
    mask: Mask
    places: Places


class Bert:
    """The encoder of a folder, behind its tokenizer."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        """Raises HostError, OSError, ValueError, SafetensorError."""
        from tokenizers import Tokenizer

        self._layers = NumpyLayers(folder, {})
        self.in_torch = Lazy(self._layers.in_torch)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str], in_torch: bool) -> Encoded:
        read = self._tokenizer.encode_batch(list(texts))
        ids, mask = np.array([one.ids for one in read]), np.array([one.attention_mask for one in read], bool)
        layers = self.in_torch() if in_torch else self._layers
        hidden = layers(self._layers.table[ids], np.zeros_like(ids), mask)
        return Encoded(hidden, mask, np.array([one.offsets for one in read]))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are read."""
        return [sum(one.attention_mask) for one in self._tokenizer.encode_batch(list(texts))]


@lru_cache(maxsize=2)
def _published(folder: Path) -> dict[str, Floats]:
    """Its weights, which all readers of a process share. A matrix lies as it is read: a few rows times it take half as
    long as times its transpose. Raises HostError, OSError, ValueError, SafetensorError."""
    from safetensors.numpy import load_file

    weights.verify(folder)
    return {name: _as_read(weight, name) for name, weight in load_file(folder / "model.safetensors").items()}


def _as_read(weight: Floats, name: str) -> Floats:
    is_linear = weight.ndim == 2 and not name.startswith("embeddings.")
    return np.ascontiguousarray(weight.T) if is_linear else weight


class NumpyLayers:
    """A BERT of full attention, absolute positions and GELU, from the embeddings of words on."""

    def __init__(self, folder: Path, changes: Mapping[str, Floats]) -> None:
        """changes: of a matrix NAME what is added, as NAME.up @ NAME.down; all else as it is. Raises HostError,
        OSError, ValueError, SafetensorError."""
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self._heads, self._count = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._eps = float(config["layer_norm_eps"])
        self._weights = dict(_published(folder))
        for name, weight in self._weights.items():
            if f"{name}.up" in changes:
                self._weights[name] = weight + _as_read(changes[f"{name}.up"] @ changes[f"{name}.down"], name)
            elif name in changes:
                self._weights[name] = _as_read(changes[name], name)
        self.table = self._weights["embeddings.word_embeddings.weight"]  # [vocabulary, dim]

    def __call__(self, words: Floats, types: Places, mask: Mask) -> Floats:
        positions, kinds = (
            self._weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("position", "token_type")
        )
        unseen = np.where(mask, np.float32(0), np.float32(-1e9))[:, None, None]  # [texts, 1, 1, tokens]
        with numpy_multiplies_alone():
            x = self._normed(words + positions[: words.shape[1]] + kinds[types], "embeddings")
            for n in range(self._count):
                layer = f"encoder.layer.{n}."
                x = self._normed(x + self._attention(x, unseen, layer + "attention."), layer + "attention.output")
                inner = _gelu(self._linear(x, layer + "intermediate.dense"))
                x = self._normed(x + self._linear(inner, layer + "output.dense"), layer + "output")
        return x

    def in_torch(self) -> Layers:
        """The same in torch, recorded, over the same weights."""
        import torch
        from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

        own = {name: torch.from_numpy(weight) for name, weight in self._weights.items()}

        def normed(x: torch.Tensor, name: str) -> torch.Tensor:
            weight, bias = own[f"{name}.LayerNorm.weight"], own[f"{name}.LayerNorm.bias"]
            return layer_norm(x, weight.shape, weight, bias, self._eps)

        def linear(x: torch.Tensor, name: str) -> torch.Tensor:
            flat = torch.addmm(own[f"{name}.bias"], x.flatten(0, 1), own[f"{name}.weight"])
            return flat.unflatten(0, x.shape[:2])

        def attention(x: torch.Tensor, seen: torch.Tensor, name: str) -> torch.Tensor:
            parts = (linear(x, f"{name}self.{part}") for part in ("query", "key", "value"))
            query, key, value = (part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in parts)
            mixed = scaled_dot_product_attention(query, key, value, seen)
            return linear(mixed.transpose(1, 2).flatten(2), f"{name}output.dense")

        def plain(words: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            positions, kinds = (own[f"embeddings.{kind}_embeddings.weight"] for kind in ("position", "token_type"))
            seen = mask[:, None, None].expand(-1, -1, mask.shape[1], -1)
            x = normed(words + positions[: words.shape[1]] + kinds[types], "embeddings")
            for n in range(self._count):
                layer = f"encoder.layer.{n}."
                x = normed(x + attention(x, seen, layer + "attention."), layer + "attention.output")
                inner = gelu(linear(x, layer + "intermediate.dense"))
                x = normed(x + linear(inner, layer + "output.dense"), layer + "output")
            return x

        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        recorded = weights.traced(plain, [torch.from_numpy(self.table)[mask], mask, mask > 0])

        def read(words: Floats, types: Places, mask: Mask) -> Floats:
            multiply_alone()
            return recorded(*map(torch.from_numpy, (words, types, mask))).numpy()

        return read

    def _attention(self, x: Floats, unseen: Floats, name: str) -> Floats:
        query, key, value = (
            self._linear(x, f"{name}self.{part}").reshape(*x.shape[:2], self._heads, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )  # [texts, heads, tokens, dim of a head] each
        scores = query @ key.swapaxes(2, 3) / np.float32(query.shape[-1] ** 0.5) + unseen
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        return self._linear(mixed.swapaxes(1, 2).reshape(x.shape), f"{name}output.dense")

    def _linear(self, x: Floats, name: str) -> Floats:
        weight = self._weights[f"{name}.weight"]
        out = x.reshape(-1, x.shape[-1]) @ weight  # in one: NumPy multiplies a stack one after the other
        out += self._weights[f"{name}.bias"]
        return out.reshape(*x.shape[:-1], -1)

    def _normed(self, x: Floats, name: str) -> Floats:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self._eps))
        return x * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]


@cache
def _gelu_table() -> tuple[Floats, Floats]:
    """(GELU at -6 to 6 in 1/_STEPS, what is added up to the next): 0 below, and x above, to 1e-8."""
    places = np.arange(-6 * _STEPS, 6 * _STEPS + 1) / _STEPS
    values = places * [(1 + erf(x * 0.5**0.5)) / 2 for x in places.tolist()]
    values[0], values[-1] = 0, 6
    rise = np.diff(values, append=6 + 1 / _STEPS)
    rise[0] = 0
    return values.astype(np.float32), rise.astype(np.float32)


def _gelu(x: Floats) -> Floats:
    """x times the normal distribution's share below x, by lines between the places of a table: to 1e-6."""
    values, rise = _gelu_table()
    place = x * np.float32(_STEPS) + np.float32(6 * _STEPS)
    at = np.clip(place, 0, len(values) - 1).astype(np.int32)
    place -= at
    place *= rise[at]
    place += values[at]
    return place
