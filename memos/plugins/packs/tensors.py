"""Tries KV and adapters that were made elsewhere before they are used here.

Knows the host and what transitions make; must not know packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memos.cube import Blob, MemCube, Text
from memos.errors import Unsupported
from memos.infrastructure.host.kv.cache import Activation
from memos.kernel.wiring import Parts


def require_usable(parts: Parts, blob: Blob, path: Path, sources: Sequence[MemCube], judged: bool, own: bool) -> None:
    """Return if KV or an adapter that was made elsewhere, of these memories, can be used here.

    KV must be what is made of them here. An adapter must load; judged: it passes its gate too. own: this vault has
    signed for it. Raises what stands against it.
    """
    if not sources or any(not isinstance(c.payload, Text) for c in sources):
        raise Unsupported("a tensor is not made of memories that came with it; promote them here")
    host, transitions = parts.host(), parts.transitions()
    if blob.tokens and blob.few_rows:
        if not own:
            raise Unsupported("nothing proves what trained KV of somebody else says; promote its memories here")
        host.load_kv(path)
    elif blob.tokens:
        # one that answers a question or two as the text does may say something else to the next
        with parts.vault.blobs.staging() as made:
            host.save_kv(transitions.kv_of(sources, blob.codec), made, blob.codec)
            if not says_the_same(host.load_kv(path), host.load_kv(made)):
                raise Unsupported(
                    f"the KV cache {path.name} does not hold what its memories say; promote its memories here"
                )
    else:
        host.cold((path,))
        _, short = transitions.gate([path], sources) if judged else ({}, [])
        if short:
            raise Unsupported(f"adapter {blob.sha256} failed its gate here: {', '.join(short)}; promote anew")


def says_the_same(one: Activation, other: Activation) -> bool:
    """True if it holds the same of the same ids, up to rounding on another machine and in what is stored."""
    mine, theirs = [
        (a.ids, a.under, a.trained, a.states, a.pictures, a.ends, list(map(len, a.layers))) for a in (one, other)
    ]
    return mine == theirs and all(
        a.shape == b.shape
        and (a.float() - b.float()).abs().sum() <= (1e-3 if b.element_size() == 4 else 2e-2) * b.float().abs().sum()
        for layers in zip(one.layers, other.layers, strict=True)
        for a, b in zip(*layers, strict=True)
    )
