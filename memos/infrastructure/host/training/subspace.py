"""Where an adapter may look: the directions that set its lessons apart from what must stay. Knows tensors only.

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
_WIDE = 512  # inputs; of a wider layer, only the directions that its lessons span are looked at
_KEPT = 2048  # tokens of the lessons that such directions are found from
_RIDGE = 0.01  # of the mean variance: a direction that was never seen is not free


def aim(student: torch.nn.Module, lessons: Read, keep: Read, seed: int = 0) -> None:
    """Set A of every adapted layer to the leading directions v of the generalised problem
    (C_lessons v = g (C_keep + ridge) v), at the strength that a fresh A has on the lessons; and stop training it.

    C are the second moments of the layer's inputs over all tokens, [in, in].
    """
    layers: dict[str, Any] = {name: m for name, m in student.named_modules() if hasattr(m, "lora_A")}
    if not layers:
        return
    bases = _bases(layers, lessons, seed)
    of_lessons, of_keep = (_moments(layers, bases, read) for read in (lessons, keep))
    for name, layer in layers.items():
        weight = layer.lora_A["default"].weight
        basis, c, k = bases[name], of_lessons[name], of_keep[name]
        ridge = _RIDGE * k.diagonal().mean().clamp_min(1e-12)
        values, vectors = torch.linalg.eigh(k + ridge * torch.eye(len(k), device=k.device))
        whiten = vectors * values.rsqrt() @ vectors.T
        lead = torch.linalg.eigh(whiten @ c @ whiten).eigenvectors[:, -weight.shape[0] :]
        found = (whiten @ lead).T.flip(0)
        fresh = weight.detach().float() if basis is None else weight.detach().float() @ basis
        strength = ((fresh @ c) * fresh).sum(1).mean().sqrt()
        found = found / ((found @ c) * found).sum(1, keepdim=True).sqrt().clamp_min(1e-12) * strength
        with torch.no_grad():
            weight[: len(found)] = found if basis is None else found @ basis.T
        weight.requires_grad_(False)


def _bases(layers: dict[str, Any], read: Read, seed: int) -> dict[str, torch.Tensor | None]:
    """Of each layer that is wide, directions that its inputs span: [in, _WIDE]; None where all are looked at."""
    kept: dict[str, list[torch.Tensor]] = {name: [] for name, m in layers.items() if _width(m) > _WIDE}
    if kept:
        rng = random.Random(seed)

        def keep(name: str, x: torch.Tensor) -> None:
            if name in kept:
                some = rng.sample(range(len(x)), min(len(x), 64))
                kept[name] = [torch.cat([*kept[name], x[some]])[-_KEPT:]]

        with _watched(layers, keep):
            read()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {
            name: torch.svd_lowrank(kept[name][0], min(_WIDE, len(kept[name][0])))[2] if name in kept else None
            for name in layers
        }


def _moments(layers: dict[str, Any], bases: dict[str, torch.Tensor | None], read: Read) -> dict[str, torch.Tensor]:
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
def _watched(layers: dict[str, Any], tell: Callable[[str, torch.Tensor], None]) -> Iterator[None]:
    """Tells the inputs of each layer, one row a token, in fp32."""

    def hook(name: str) -> Callable[[Any, Sequence[torch.Tensor]], None]:
        return lambda module, given: tell(name, given[0].detach().reshape(-1, given[0].shape[-1]).float())

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _width(layer: Any) -> int:
    return int(layer.lora_A["default"].weight.shape[1])
