"""What the model is asked, with what it remembers meanwhile, and how near an answer over KV is to the full prompt's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memos.config import FidelityConfig
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.model.prompt import Message

_EXACT = FidelityConfig(level="L0")


@dataclass(frozen=True)
class Request:
    """What the model is asked, and what it remembers meanwhile.

    `pasts` are KV of the first of `memories`, in order; `fidelity` says how several of them are put together;
    `adapters` are folders, active together. `talk` is KV of an earlier prompt of the same conversation, used as far as
    this prompt begins alike; `keep`: the answer brings its own KV, for the next one. `released` is `Host.released` as
    it was before the payloads were brought: exact prefixes of what was let go of since are not stored.
    `pictures`: those of the first memories, as `Vision` names them.
    """

    messages: tuple[Message, ...]
    memories: tuple[str, ...] = ()
    pasts: tuple[Activation, ...] = ()
    adapters: Stack = ()
    fidelity: FidelityConfig = _EXACT
    talk: Activation | None = None
    keep: bool = False
    released: int | None = None
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nearness:
    """How near an answer over KV is to the full prompt's: over all tokens after the memories, and (kl in nats,
    same_first) of the first answer token."""

    max_abs_logit_diff: float
    top1_agreement: float
    kl: float
    same_first: bool

    @classmethod
    def of(cls, over_kv: torch.Tensor, full: torch.Tensor) -> Nearness:
        """over_kv, full: [tokens, vocabulary], the logits of both after the same tokens."""
        same = over_kv.argmax(-1) == full.argmax(-1)
        p, q = (torch.log_softmax(logits[-1].double(), -1) for logits in (full, over_kv))
        return cls(
            max_abs_logit_diff=float((over_kv - full).abs().max()),
            top1_agreement=float(same.float().mean()),
            kl=float((p.exp() * (p - q)).sum().clamp_min(0)),
            same_first=bool(same[-1]),
        )
