"""Exports one or several adapters as a single one that plain peft and vLLM load; knows folders, no cubes.

vLLM takes one adapter per request, of certain ranks, without DoRA and without modules that are saved whole; and its
prefix cache goes by the name, so a name must never be used again: it is made of the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig

from memos.errors import InputError, Unsupported
from memos.infrastructure.host.adapters.lora import Card, read_card, write_adapter
from memos.infrastructure.host.adapters.serving import Adapter, joined, read_adapter

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the ranks that vLLM takes


def export_adapter(host: Host, folders: Sequence[Path], out: Path) -> Path:
    """One folder under `out` that is all the adapters active together, exactly (`cat`); named by its content.

    Raises InputError without adapters, Unsupported where their ranks together are more than vLLM takes.
    """
    adapters = [read_adapter(folder, dict(host.model.named_modules()), host.fingerprint) for folder in folders]
    whole = joined(adapters)
    if whole is None:
        raise InputError("export needs at least one adapter; name cubes of `memos ls` or folders")
    needed = max(a.shape[1] for a, _ in whole.layers.values())
    rank = next((rank for rank in RANKS if rank >= needed), None)
    if rank is None:
        raise Unsupported(
            f"{len(adapters)} adapters have rank {needed} together, and servers take up to {RANKS[-1]}; export fewer "
            f"at once, or promote with a smaller distil.rank"
        )
    tensors = _padded(whole, rank)
    folder = out / f"memos-{_digest(tensors)[:16]}"
    # the tensors carry their scaling
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=list(whole.layers), task_type="CAUSAL_LM")
    write_adapter(folder, config, tensors, _card(host.fingerprint, folders))
    return folder


def _padded(adapter: Adapter, rank: int) -> dict[str, torch.Tensor]:
    """The tensors of peft's file, at this rank: rows and columns of zeros add nothing."""
    tensors: dict[str, torch.Tensor] = {}
    for name, (a, b) in adapter.layers.items():
        missing = rank - a.shape[1]
        stem = f"base_model.model.{name}.lora_"
        tensors[f"{stem}A.weight"] = torch.nn.functional.pad(a.T, (0, 0, 0, missing)).cpu().contiguous()
        tensors[f"{stem}B.weight"] = torch.nn.functional.pad(b.T, (0, missing)).cpu().contiguous()
    return tensors


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _card(fingerprint: dict[str, str], folders: Sequence[Path]) -> Card | None:
    """The card of all together; None with a stranger's among them: what they were made for is not for us to say."""
    cards = [read_card(path, fingerprint) for path in folders]
    if not all(cards):
        return None
    return {
        "fingerprint": fingerprint,
        "sources": [source for card in cards for source in card.get("sources", [])],
        "lessons": [lesson for card in cards for lesson in card.get("lessons", [])],
        "merged": [path.name for path in folders],
    }
