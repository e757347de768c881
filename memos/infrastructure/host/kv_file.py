"""KV caches as files: one safetensors file each, layer-major, with what made it and a checksum in its header.

Knows files; knows no models. A file that does not fit this host, or is not as it was written, is refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from memos.errors import CorruptBlob, FingerprintMismatch
from memos.infrastructure.host.codec import CODECS, Codec, pack, unpack
from memos.infrastructure.host.kv import Activation

_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
}
LAYOUT = "kv/3 layer-major rotated base-0"


def save_activation(activation: Activation, path: Path, fingerprint: dict[str, str], codec: Codec = "raw") -> None:
    """Tensors `layers.NNN.k` and `.v`, and the codec's scales beside them; a layer can be read alone."""
    tensors = {
        f"layers.{n:03d}.{kind}{part}": stored.cpu().contiguous()
        for n, layer in enumerate(activation.layers)
        for kind, tensor in zip("kv", layer, strict=True)
        for part, stored in pack(codec, kind, tensor).items()
    }
    ids = json.dumps(activation.ids)
    header = {
        "layout": LAYOUT,
        "codec": codec,
        "fingerprint": json.dumps(fingerprint, sort_keys=True),
        "ids": ids,
        "digest": _checksum(ids, codec, tensors),
    }
    save_file(tensors, path, header)


def load_activation(path: Path, fingerprint: dict[str, str], device: torch.device) -> Activation:
    """Read a file back, or refuse it.

    Raises FingerprintMismatch, naming the part that differs, and CorruptBlob for a file that is cut short
    or changed.
    """
    try:
        with safe_open(path, "pt") as f:
            header = f.metadata() or {}
            if header.get("layout") != LAYOUT:
                raise FingerprintMismatch(
                    f"{path.name} has layout {header.get('layout')!r}, this host reads {LAYOUT!r}; "
                    f"promote its sources again"
                )
            require_same_host(dict(json.loads(header["fingerprint"])), fingerprint, path.name)
        tensors = _tensors(path)
        codec: Codec = next(known for known in CODECS if known == header["codec"])
        sound = _checksum(header["ids"], codec, tensors) == header["digest"]
        ids = tuple(json.loads(header["ids"]))
    except (SafetensorError, KeyError, ValueError, TypeError, OSError, RuntimeError, StopIteration) as error:
        raise CorruptBlob(
            f"{path.name} is not a readable KV file ({error}); demote its cube, or promote its sources again"
        ) from error
    if not sound:
        raise CorruptBlob(f"{path.name} does not match its digest; demote its cube, or promote its sources again")
    dtype = getattr(torch, fingerprint["dtype"])
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in sorted(tensors.items()):
        stem = ".".join(name.split(".")[:3])  # layers.NNN.k
        parts.setdefault(stem, {})[name.removeprefix(stem)] = tensor.to(device, non_blocking=True)
    whole = [unpack(codec, stem[-1], stored, dtype) for stem, stored in parts.items()]
    return Activation(ids, tuple(zip(whole[0::2], whole[1::2], strict=True)))


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file whose header safetensors has found sound, as views of one buffer.

    Read in one go: through safetensors' memory map, a file that is not in the page cache came at half the rate.
    """
    content = torch.from_numpy(np.fromfile(path, np.uint8))
    begin = 8 + int.from_bytes(content[:8].numpy().tobytes(), "little")
    header = json.loads(content[8:begin].numpy().tobytes())
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        out[name] = content[begin + first : begin + end].view(_DTYPES[entry["dtype"]]).view(entry["shape"])
    return out


def _checksum(ids: str, codec: str, tensors: dict[str, torch.Tensor]) -> str:
    """XXH3 (128 bit) of all that the file holds: tells any accidental change, at the rate of memory."""
    digest = xxhash.xxh3_128(f"{codec}{ids}".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def require_same_host(was: dict[str, str], now: dict[str, str], what: str) -> None:
    """Raises FingerprintMismatch unless every part agrees."""
    differing = [part for part in sorted(was.keys() | now.keys()) if was.get(part) != now.get(part)]
    if differing:
        detail = ", ".join(f"{p} {was.get(p, 'none')[:12]} is now {now.get(p, 'none')[:12]}" for p in differing)
        raise FingerprintMismatch(
            f"{what} was made by another host: {detail}; load that model, or promote the sources again on this one"
        )
