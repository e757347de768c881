"""The published encoder in NumPy, for a process that reads few texts: to import torch takes longer than to read them.

Knows weights and tokens; must not import torch or transformers. Its hidden states are torch's to 1e-5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import erf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memos.infrastructure.host.threads import numpy_multiplies_alone

Floats = npt.NDArray[np.float32]
_STEPS = 512  # of one in the table of GELU


class Encoded(NamedTuple):
    """Texts as an encoder reads them. hidden: [texts, tokens, dim]; mask: [texts, tokens], False for padding; places:
    [texts, tokens, 2], the characters [begin, end) of each token, 0 and 0 for special ones."""

    hidden: Floats
    mask: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]


class NumpyBert:
    """The encoder of a folder, behind its tokenizer."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        """Raises OSError, ValueError, SafetensorError."""
        from tokenizers import Tokenizer

        self._layers = NumpyLayers(folder, {})
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str]) -> Encoded:
        read = self._tokenizer.encode_batch(list(texts))
        ids, mask = np.array([one.ids for one in read]), np.array([one.attention_mask for one in read], bool)
        hidden = self._layers(self._layers.table[ids], np.zeros_like(ids), mask)
        return Encoded(hidden, mask, np.array([one.offsets for one in read]))


class NumpyLayers:
    """A BERT of full attention, absolute positions and GELU, from the embeddings of words on."""

    def __init__(self, folder: Path, changes: Mapping[str, Floats]) -> None:
        """changes: of a matrix NAME what is added, as NAME.up @ NAME.down; all else as it is. Raises OSError,
        ValueError, SafetensorError."""
        from safetensors.numpy import load_file

        config = json.loads((folder / "config.json").read_text("utf-8"))
        self._heads, self._count = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._eps = np.float32(config["layer_norm_eps"])
        self._weights: dict[str, Floats] = load_file(folder / "model.safetensors")
        for name, weight in self._weights.items():
            if f"{name}.up" in changes:
                weight = weight + changes[f"{name}.up"] @ changes[f"{name}.down"]
            weight = changes.get(name, weight)
            # a few rows times a matrix that lies as it is read take half as long as times its transpose
            is_linear = weight.ndim == 2 and not name.startswith("embeddings.")
            self._weights[name] = np.ascontiguousarray(weight.T) if is_linear else weight
        self.table = self._weights["embeddings.word_embeddings.weight"]  # [vocabulary, dim]

    def __call__(self, words: Floats, types: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> Floats:
        """words: [texts, tokens, dim]; types and mask: [texts, tokens]. Hidden states, as words."""
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
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + self._eps)
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
