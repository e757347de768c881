"""Tries KV and adapters that were made elsewhere before they are used here.

Knows the host and what transitions make; must not know packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memos.cube import Blob, MemCube, Text
from memos.errors import Unsupported
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
            if not host.load_kv(path).is_near(host.load_kv(made)):
                raise Unsupported(
                    f"the KV cache {path.name} does not hold what its memories say; promote its memories here"
                )
    else:
        host.cold((path,))
        _, short = transitions.gate([path], sources) if judged else ({}, [])
        if short:
            raise Unsupported(f"adapter {blob.sha256} failed its gate here: {', '.join(short)}; promote anew")
