"""KV for composing without reading anything anew (L1): with what its rows gain behind others, on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from memos.errors import Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, Layer
from memos.infrastructure.host.kv.compose import Motion
from memos.infrastructure.host.kv.files import Codec, pack_raw, unpack_float

_BEHIND = (9, 18, 18, 30, 30, 45)  # so many other memories stand before one, others each time
_DRIFT = torch.float8_e4m3fn  # a mean over other texts, which says no more than its first digits
_MOST = torch.finfo(_DRIFT).max


def encode_wrapped(host: Host, memories: Sequence[str], others: Sequence[str]) -> Activation:
    """KV of the memories, and what its rows gain behind others: mean over several readings, each behind other ones.
    Where several are composed, each gains the share that has come at its place, so that KV that was encoded apart is
    met as if it had been read there; alone it is exact.

    Raises as `Host.encode`, and Unsupported where KV cannot be moved.
    """
    can, alone = host.capability, host.encode(memories)
    if can.motion is None or can.states:
        raise Unsupported(f"KV of {host.model.config.model_type} cannot be wrapped: {can.why}; use codec raw")
    context = min(n for n in (host.context, can.motion_limit, 1 << 20) if n)
    left, read = list(others), list[Activation]()
    for count in _BEHIND:
        before, left = left[:count], left[count:]
        if len(before) == count and len(host.prompts.prefix((*before, *memories))) < context:
            read.append(host.encode((*before, *memories)))
    return with_drift(alone, read, len(host.head), can.motion) if read else alone


def with_drift(alone: Activation, read: Sequence[Activation], head: int, motion: Motion) -> Activation:
    """KV that was read alone after the head, with how it differs in the mean of several readings of others and then the
    same, moved to where it stands alone. Raises Unsupported where one does not end as the text does.
    """
    own = alone.ids[head:]
    moved = list[list[Layer]]()
    for whole in read:
        start = len(whole.ids) - len(own)
        if whole.ids[start:] != own:
            raise Unsupported("a memory reads otherwise behind others, so its KV cannot be wrapped; use codec raw")
        moved.append([motion.by(head - start, n, layer) for n, layer in enumerate(whole.since(start).layers)])
    layers = list[Layer]()
    for layer, *behind in zip(alone.layers, *moved, strict=True):
        drift = [torch.zeros_like(rows, dtype=_DRIFT) for rows in layer]
        for gained, rows, *others in zip(drift, layer, *behind, strict=True):
            mean = torch.stack(others).float().mean(0) - rows[..., head:, :].float()
            gained[..., head:, :] = mean.clamp(-_MOST, _MOST).to(_DRIFT)
        layers.append((*layer, *drift))
    return replace(alone, layers=tuple(layers), drifts=True)


WRAPPED = Codec(pack_raw, unpack_float, made=True, exact=True, encode=encode_wrapped)
