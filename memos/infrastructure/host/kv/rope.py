"""Finds how cached keys depend on position by moving a text, not by the name of the architecture.

A model with relative positions computes the same keys wherever a text stands, but for a rotation of them
(Su et al., 2104.09864). The same random tokens are run at two positions, and each cached tensor is
explained as unmoved or as turned by one of the model's own frequencies. What cannot be explained is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import torch
from transformers import PreTrainedModel

from memos.errors import Unsupported


@dataclass(frozen=True)
class Rotation:
    """The rotation of one cached tensor: by `position * frequencies` in the dimensions from `start` on.

    frequencies: [n] in fp32, radians a token; 2n dimensions turn. interleaved: pairs are (2i, 2i+1), else (i, n+i).
    """

    frequencies: torch.Tensor
    start: int
    interleaved: bool

    def by(self, tokens: int, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` [..., head_dim] moved by so many tokens: turned in fp32 and cast once."""
        width = 2 * len(self.frequencies)
        angle = tokens * self.frequencies.to(tensor.device)
        cos, sin = angle.cos(), angle.sin()
        part = tensor[..., self.start : self.start + width].float()
        if self.interleaved:
            a, b = part[..., 0::2], part[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = part.chunk(2, -1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        moved = tensor.clone()
        moved[..., self.start : self.start + width] = turned.to(tensor.dtype)
        return moved


@dataclass(frozen=True)
class Motion:
    """What moving a text does to its cached tensors: a pair for each layer, None where nothing changes."""

    layers: tuple[tuple[Rotation | None, Rotation | None], ...]

    def by(
        self, tokens: int, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The layers' tensors as if their text stood `tokens` later; always made from what was first encoded."""
        if not tokens:
            return list(layers)
        return [
            (_moved(first, tokens, k), _moved(second, tokens, v))
            for (first, second), (k, v) in zip(self.layers, layers, strict=True)
        ]


def find_motion(
    model: PreTrainedModel,
    here: Sequence[tuple[torch.Tensor, torch.Tensor]],
    there: Sequence[tuple[torch.Tensor, torch.Tensor]],
    tokens: int,
) -> Motion:
    """The motion that turns the layers `here` into those of the same text encoded `tokens` later.

    Raises Unsupported, naming the first layer whose tensors no rotation explains.
    """
    known = list(_frequencies(model))
    layers = []
    for n, (before, after) in enumerate(zip(here, there, strict=True)):
        keys, values = (_explain(known, tokens, a, b) for a, b in zip(before, after, strict=True))
        for kind, found in (("keys", keys), ("values", values)):
            if not found:
                raise Unsupported(
                    f"the {kind} of layer {n} change with position in a way that is no rotation by the model's own "
                    f"frequencies (learned positions?), so KV encoded at one place is wrong at another"
                )
        layers.append((keys[0], values[0]))
    return Motion(tuple(layers))


def _explain(
    known: Sequence[torch.Tensor], tokens: int, before: torch.Tensor, after: torch.Tensor
) -> list[Rotation | None]:
    """The first explanation that holds, in a list; empty if none does."""
    turns: Iterator[Rotation | None] = chain((None,), _candidates(known, before.shape[-1]))
    return next(([t] for t in turns if _close(_moved(t, tokens, before), after)), [])


def _frequencies(model: PreTrainedModel) -> Iterator[torch.Tensor]:
    """Every set of inverse frequencies the model holds (one for each layer type where they differ)."""
    seen: list[torch.Tensor] = []
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1:
            buffer = buffer.detach().float().clone()  # longrope writes its own anew, in place
            if not any(buffer.shape == s.shape and torch.equal(buffer, s) for s in seen):
                seen.append(buffer)
                yield buffer


def _candidates(known: Sequence[torch.Tensor], head_dim: int) -> Iterator[Rotation]:
    for frequencies, interleaved in product(known, (False, True)):
        rest = head_dim - 2 * len(frequencies)
        if rest >= 0:
            yield Rotation(frequencies, 0, interleaved)
            if rest:
                yield Rotation(frequencies, rest, interleaved)


def _moved(turn: Rotation | None, tokens: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if turn is None else turn.by(tokens, tensor)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding in their dtype, measured against the largest value."""
    rounding = 1e-4 if b.dtype == torch.float32 else 3e-2
    return bool((a.float() - b.float()).abs().max() <= rounding * b.float().abs().max().clamp_min(1e-6))
