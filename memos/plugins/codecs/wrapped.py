"""KV for composing without reading anything anew (L1): the rows that memories have behind others, on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from memos.errors import Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, Layer
from memos.infrastructure.host.kv.compose import Motion
from memos.infrastructure.host.kv.files import Codec, pack_raw, unpack_float

_BEHIND = (9, 18, 30, 45)  # so many other memories stand before one where several groups are composed


def encode_wrapped(host: Host, memories: Sequence[str], others: Sequence[str]) -> Activation:
    """KV of the memories: the rows that they have behind others, mean over several numbers of those, so that KV that
    was encoded apart is met as if it had been read after what it now stands behind.

    Raises as `Host.encode`, and Unsupported where KV cannot be moved.
    """
    can, alone = host.capability, host.encode(memories)
    if can.motion is None or can.states:
        raise Unsupported(f"KV of {host.model.config.model_type} cannot be wrapped: {can.why}; use codec raw")
    context = min(n for n in (host.context, can.motion_limit, 1 << 20) if n)
    texts = [(*others[:count], *memories) for count in _BEHIND if count <= len(others)]
    read = [host.encode(text) for text in texts if len(host.prompts.prefix(text)) < context]
    return as_behind(alone, read, len(host.head), can.motion) if read else alone


def as_behind(alone: Activation, read: Sequence[Activation], head: int, motion: Motion) -> Activation:
    """The rows of a text as they are behind other texts: mean over several readings, moved to where it stands alone.

    alone: read by itself after the head. read: others and then the text, after the head each. Raises Unsupported where
    one does not end as the text does.
    """
    own, kept = alone.ids[head:], [layer[:2] for layer in alone.upto(head).layers]
    moved = list[list[Layer]]()
    for whole in read:
        start = len(whole.ids) - len(own)
        if whole.ids[start:] != own:
            raise Unsupported("a memory reads otherwise behind others, so its KV cannot be wrapped; use codec raw")
        moved.append(motion.by(head - start, whole.since(start).layers))
    means = [
        tuple(torch.stack(same).mean(0) for same in zip(*layers, strict=True)) for layers in zip(*moved, strict=True)
    ]
    layers = [tuple(torch.cat(pair, -2) for pair in zip(*both, strict=True)) for both in zip(kept, means, strict=True)]
    return replace(alone, layers=tuple(layers))


WRAPPED = Codec(pack_raw, unpack_float, made=True, encode=encode_wrapped)
