"""The published encoder in NumPy, for a process that reads few texts: to import torch takes longer than to read them.

Knows weights and tokens; must not import torch or transformers. Its hidden states are torch's to 1e-5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Encoded(NamedTuple):
    """Texts as an encoder reads them. hidden: [texts, tokens, dim]; mask: [texts, tokens], False for padding; places:
    [texts, tokens, 2], the characters [begin, end) of each token, 0 and 0 for special ones."""

    hidden: Floats
    mask: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]


class NumpyBert:
    """A BERT of full attention, absolute positions and GELU."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        """Raises OSError, ValueError, SafetensorError."""
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text("utf-8"))
        self._heads, self._layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._eps = np.float32(config["layer_norm_eps"])
        self._weights: dict[str, Floats] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str]) -> Encoded:
        read = self._tokenizer.encode_batch(list(texts))
        mask = np.array([one.attention_mask for one in read], bool)
        hidden = self._hidden(np.array([one.ids for one in read]), mask)
        return Encoded(hidden, mask, np.array([one.offsets for one in read]))

    def _hidden(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> Floats:
        words, positions, types = (
            self._weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")
        )
        x = self._normed(words[ids] + positions[: ids.shape[1]] + types[0], "embeddings")
        unseen = np.where(mask, np.float32(0), np.float32(-1e9))[:, None, None]  # [texts, 1, 1, tokens]
        for n in range(self._layers):
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
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, x: Floats, name: str) -> Floats:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + self._eps)
        return x * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]


def _gelu(x: Floats) -> Floats:
    """x times the normal distribution's share below x; erf by Abramowitz and Stegun 7.1.26, to 1.5e-7."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = tail * t + np.float32(factor)
    share = np.float32(0.5) * t * tail * np.exp(-z * z)
    return x * np.where(x < 0, share, 1 - share)
