"""KV caches as files: one safetensors file each, layer-major, with what made it and checksums in its header.

Knows files; knows no models. A file that does not fit this host, or is not as it was written, is refused: what its
header tells, before anything is read; a layer, before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from memos.errors import CorruptBlob, FingerprintMismatch, VaultError
from memos.infrastructure.host.fingerprint import require_same_host
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer, room_for
from memos.infrastructure.host.kv.codecs import CODECS, Codec, pack, unpack

_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
}
LAYOUT = "kv/5 layer-major rotated base-0"
_UNDER, _TRAINED = "adapters", "trained rows"  # in the fingerprint of KV that was made under some, or trained
Parts = dict[str, torch.Tensor]  # a layer as stored: "k" and "v", and the codec's scales beside them
_Place = tuple[int, int, str, list[int]]  # first byte, end, dtype, shape


def save_activation(
    activation: Activation, path: Path, fingerprint: dict[str, str], codec: Codec = "raw", after: Sequence[int] = ()
) -> None:
    """Tensors `layers.NNN.k` and `.v`, and the codec's scales beside them; a layer can be read alone.

    after: ids that stand before those of `activation`, whose KV lies elsewhere. Raises VaultError where it cannot be
    written, as on a full disk.
    """
    layers = [
        {
            f"{kind}{part}": stored.cpu().contiguous()
            for kind, tensor in zip("kv", layer, strict=True)
            for part, stored in pack(codec, kind, tensor).items()
        }
        for layer in activation.layers
    ]
    ids, sums = json.dumps(activation.ids), json.dumps([_checksum(layer) for layer in layers])
    header = {
        "layout": LAYOUT,
        "codec": codec,
        "fingerprint": json.dumps(fingerprint | _made_by(activation), sort_keys=True),
        "ids": ids,
        "after": _place(after),
        "checksums": sums,
    }
    header["digest"] = _digest(header)
    tensors = {f"layers.{n:03d}.{name}": tensor for n, layer in enumerate(layers) for name, tensor in layer.items()}
    try:
        save_file(tensors, path, header)
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        raise VaultError(
            f"a KV cache of {size:,} bytes was not written ({error}); nothing of it is kept, and its memories "
            f"answer as text; make room in {path.parent}, or set activation.codec to a smaller one"
        ) from error


def load_activation(
    path: Path, fingerprint: dict[str, str], device: torch.device, after: Sequence[int] = ()
) -> Activation:
    """Read a file back, or refuse it. Its layers come in the background; each is checked before it can be used.

    after: the ids that stand before those of the file.
    Raises FingerprintMismatch, naming the part that differs, and CorruptBlob for a file that is cut short
    or changed; for a layer, where it is used.
    """
    try:
        with safe_open(path, "pt") as f:  # finds a file that is cut short
            header = f.metadata() or {}
        if header.get("layout") != LAYOUT:
            raise FingerprintMismatch(
                f"{path.name} has layout {header.get('layout')!r}, this host reads {LAYOUT!r}; "
                f"promote its sources again"
            )
        made = dict(json.loads(header["fingerprint"]))
        under = tuple(json.loads(made.pop(_UNDER, "[]")))  # which ones are wanted is for the request to say
        trained = int(made.pop(_TRAINED, "0"))
        require_same_host(made, fingerprint, path.name)
        codec: Codec = next(known for known in CODECS if known == header["codec"])
        if _digest(header) != header["digest"]:
            raise _damaged(path)
        ids, sums = tuple(json.loads(header["ids"])), json.loads(header["checksums"])
        file = path.open("rb", buffering=0)  # one for all layers: the system reads ahead in it
        if hasattr(os, "posix_fadvise"):  # the system reads further ahead then
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        places = _places(file)
        if list(places) != [f"layers.{n:03d}" for n in range(len(sums))]:
            raise _damaged(path)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError, RuntimeError, StopIteration) as error:
        raise CorruptBlob(
            f"{path.name} is not a readable KV file ({error}); demote its cube, or promote its sources again"
        ) from error
    if _place(after) != header["after"]:
        raise FingerprintMismatch(f"{path.name} continues other tokens than those before it; promote its sources again")
    dtype = getattr(torch, fingerprint["dtype"])
    with room_for("a KV cache"):
        content = torch.empty(max(end for parts in places.values() for _, end, *_ in parts.values()), dtype=torch.uint8)

    read = list[int]()

    def bring(n: int) -> Layer:
        try:
            stored = _read(file, places[f"layers.{n:03d}"], content)
            read.append(n)
            if len(read) == len(sums):
                file.close()
        except (OSError, ValueError, RuntimeError) as error:  # gone, or cut short, since its header was read
            raise _damaged(path) from error
        if _checksum(stored) != sums[n]:
            raise _damaged(path)
        parts = {name: tensor.to(device, non_blocking=True) for name, tensor in stored.items()}
        keys, values = (
            unpack(codec, kind, {name[1:]: t for name, t in parts.items() if name[0] == kind}, dtype) for kind in "kv"
        )
        return keys, values

    return Activation(ids, Arriving(len(sums), bring, device), under, trained)


def _digest(header: dict[str, str]) -> str:
    """Of all that a header says of its tensors."""
    told = "".join(header[part] for part in ("codec", "fingerprint", "ids", "after", "checksums"))
    return xxhash.xxh3_128(told.encode()).hexdigest()


def _made_by(activation: Activation) -> dict[str, str]:
    """What made KV beside the model: adapters that were active, by their digests, and training."""
    by = {_UNDER: json.dumps(activation.under) if activation.under else "", _TRAINED: str(activation.trained or "")}
    return {part: told for part, told in by.items() if told}


def _place(ids: Sequence[int]) -> str:
    """How many ids stand before, and which."""
    return f"{len(ids)} {xxhash.xxh3_128(json.dumps(list(ids)).encode()).hexdigest()}"


def _damaged(path: Path) -> CorruptBlob:
    return CorruptBlob(f"{path.name} does not match its digest; demote its cube, or promote its sources again")


def _places(file: FileIO) -> dict[str, dict[str, _Place]]:
    """For each layer, by name, where its parts lie in a file whose header safetensors has found sound."""
    begin = 8 + int.from_bytes(file.read(8), "little")
    entries = json.loads(file.read(begin - 8))
    out: dict[str, dict[str, _Place]] = {}
    for name, entry in sorted(entries.items()):
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        stem, dot, part = name[:10], name[10:11], name[11:]  # layers.NNN.k
        if dot != "." or entry["dtype"] not in _DTYPES:
            raise ValueError(f"there is a tensor {name} of {entry['dtype']}")
        out.setdefault(stem, {})[part] = begin + first, begin + end, entry["dtype"], entry["shape"]
    return out


def _read(file: FileIO, places: dict[str, _Place], into: torch.Tensor) -> Parts:
    """The parts of a layer, each run of bytes in one call, as views of `into`, which has room for the whole file.

    Through safetensors' memory map, a file that is not in the page cache came at half the rate; into memory of each
    layer's own, at a third, since small pieces of new memory cost more to get than to fill.
    """
    runs = list[tuple[int, int]]()
    for first, end, *_ in sorted(places.values()):
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((first, end))
    memory = into.numpy().data
    for first, end in runs:
        got = first
        while got < end and (more := os.preadv(file.fileno(), [memory[got:end]], got)):  # a call reads 2 GiB at most
            got += more
        if got < end:
            raise ValueError(f"{file.name} ends early")
    return {
        name: into[first:end].view(_DTYPES[dtype]).view(shape) for name, (first, end, dtype, shape) in places.items()
    }


def _checksum(parts: Parts) -> str:
    """XXH3 (128 bit) of a layer as stored: tells any accidental change, at the rate of memory."""
    digest = xxhash.xxh3_128()
    for name in sorted(parts):
        tensor = parts[name]
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)  # of any shape: it may be a stranger's
    return digest.hexdigest()
