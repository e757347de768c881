"""Adapters as one adapter for others: what plain peft and vLLM load. Knows folders; knows no cubes.

vLLM takes one adapter per request, of certain ranks, without DoRA and without modules that are saved whole; and its
prefix cache goes by the name, so a name must never be used again: it is made of the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from memos.errors import InputError, Unsupported
from memos.infrastructure.host.adapters.lora import read_card, write_adapter
from memos.infrastructure.host.adapters.serving import joined, read_adapter
from memos.infrastructure.host.host import Host

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM takes


def export_adapter(host: Host, folders: Sequence[Path], out: Path) -> Path:
    """One folder under `out` that is all the adapters active together, exactly (`cat`); named by its content.

    Raises InputError without adapters, Unsupported where their ranks together are more than vLLM takes.
    """
    adapters = [read_adapter(folder, dict(host.model.named_modules()), host.fingerprint) for folder in folders]
    one = joined(adapters)
    if one is None:
        raise InputError("export needs at least one adapter; name cubes of `memos ls` or folders")
    most = max(a.shape[1] for a, _ in one.layers.values())
    rank = next((rank for rank in RANKS if rank >= most), None)
    if rank is None:
        raise Unsupported(
            f"{len(adapters)} adapters have rank {most} together, and servers take up to {RANKS[-1]}; export fewer "
            f"at once, or promote with a smaller distil.rank"
        )
    tensors: dict[str, torch.Tensor] = {}
    for name, (a, b) in one.layers.items():
        more = rank - a.shape[1]  # rows and columns of zeros add nothing
        stem = f"base_model.model.{name}.lora_"
        tensors[f"{stem}A.weight"] = torch.nn.functional.pad(a.T, (0, 0, 0, more)).cpu().contiguous()
        tensors[f"{stem}B.weight"] = torch.nn.functional.pad(b.T, (0, more)).cpu().contiguous()
    digest = sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    folder = out / f"memos-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    cards = [read_card(path, host.fingerprint) for path in folders]
    card: dict[str, Any] | None = {
        "fingerprint": host.fingerprint,
        "sources": [source for card in cards for source in card.get("sources", [])],
        "lessons": [lesson for card in cards for lesson in card.get("lessons", [])],
        "merged": [path.name for path in folders],
    }
    if not all(cards):  # a stranger's among them: what they were made for is not for us to say
        card = None
    write_adapter(folder, sorted(one.layers), rank, card)
    return folder
