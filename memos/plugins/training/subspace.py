"""Computes where an adapter may look: directions that set its lessons apart from what must stay unchanged.

An adapter changes a layer's output by x A B. If A reads directions that are strong in the lessons and weak in the
prompts to keep, then whatever B learns, the latter change little (the null-space idea of AlphaEdit, 2410.02355, with
a covariance in place of a hard null space). A is set once and not trained.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Read = Callable[[], None]  # forwards of the student over some rows
Layers = dict[str, Any]  # adapted layers of peft, which has no types, by name
_WIDE_INPUTS = 512  # of a wider layer, only the directions that its lessons span are looked at
_SAMPLED_TOKENS = 2048  # of the lessons, which such directions are found from
_RIDGE_SHARE = 0.01  # of the mean variance: a direction that was never seen is not free


def aim(student: torch.nn.Module, lessons: Read, keep: Read, seed: int = 0) -> None:
    """Set A of every adapted layer to the leading directions v of the generalised problem
    (C_lessons v = g (C_keep + ridge) v), at the strength that a fresh A has on the lessons; and stop training it.

    C are the second moments of the layer's inputs over all tokens, [in, in].
    """
    layers: Layers = {name: m for name, m in student.named_modules() if hasattr(m, "lora_A")}
    if not layers:
        return
    bases = _bases(layers, lessons, seed)
    lesson_moments, keep_moments = (_moments(layers, bases, read) for read in (lessons, keep))
    for name, layer in layers.items():
        weight, basis = layer.lora_A["default"].weight, bases[name]
        fresh = weight.detach().float() if basis is None else weight.detach().float() @ basis
        found = _leading(lesson_moments[name], keep_moments[name], fresh)
        with torch.no_grad():
            weight[: len(found)] = found if basis is None else found @ basis.T
        weight.requires_grad_(False)


def _leading(lessons: torch.Tensor, keep: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """As many leading directions as `fresh` [rank, in] has rows, at its strength; lessons, keep: moments [in, in]."""
    ridge = _RIDGE_SHARE * keep.diagonal().mean().clamp_min(1e-12)
    values, vectors = torch.linalg.eigh(keep + ridge * torch.eye(len(keep), device=keep.device))
    whiten = vectors * values.rsqrt() @ vectors.T
    lead = torch.linalg.eigh(whiten @ lessons @ whiten).eigenvectors[:, -fresh.shape[0] :]
    found = (whiten @ lead).T.flip(0)
    strength = ((fresh @ lessons) * fresh).sum(1).mean().sqrt()
    return found / ((found @ lessons) * found).sum(1, keepdim=True).sqrt().clamp_min(1e-12) * strength


def _bases(layers: Layers, read: Read, seed: int) -> dict[str, torch.Tensor | None]:
    """Of each layer that is wide, directions that its inputs span: [in, _WIDE_INPUTS]; None where all are looked at."""
    wide = [name for name, layer in layers.items() if layer.lora_A["default"].weight.shape[1] > _WIDE_INPUTS]
    sampled: dict[str, list[torch.Tensor]] = {name: [] for name in wide}
    if sampled:
        rng = random.Random(seed)

        def sample(name: str, x: torch.Tensor) -> None:
            if name in sampled:
                some = rng.sample(range(len(x)), min(len(x), 64))
                sampled[name] = [torch.cat([*sampled[name], x[some]])[-_SAMPLED_TOKENS:]]

        with _watched(layers, sample):
            read()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: _spanned(sampled[name][0]) if name in sampled else None for name in layers}


def _spanned(inputs: torch.Tensor) -> torch.Tensor:
    """Leading directions of inputs [tokens, in]: [in, at most _WIDE_INPUTS]."""
    directions: torch.Tensor = torch.svd_lowrank(inputs, min(_WIDE_INPUTS, len(inputs)))[2]
    return directions


def _moments(layers: Layers, bases: dict[str, torch.Tensor | None], read: Read) -> dict[str, torch.Tensor]:
    """Second moments of each layer's inputs over the tokens read, in its basis: [in, in]."""
    sums: dict[str, torch.Tensor] = {}
    count: dict[str, int] = dict.fromkeys(layers, 0)

    def add(name: str, x: torch.Tensor) -> None:
        basis = bases[name]
        x = x if basis is None else x @ basis
        sums[name] = sums[name] + x.T @ x if name in sums else x.T @ x
        count[name] += len(x)

    with _watched(layers, add):
        read()
    return {name: total / count[name] for name, total in sums.items()}


@contextmanager
def _watched(layers: Layers, see: Callable[[str, torch.Tensor], None]) -> Iterator[None]:
    """Within it, `see` is given the inputs of each layer, one row a token, in fp32."""

    def hook(name: str) -> Callable[[torch.nn.Module, Sequence[torch.Tensor]], None]:
        return lambda module, given: see(name, given[0].detach().reshape(-1, given[0].shape[-1]).float())

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()
