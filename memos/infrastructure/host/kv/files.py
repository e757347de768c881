"""Saves and loads KV caches as safetensors files, layer-major, with their origin and checksums in the header.

Knows files; knows no models. A file that does not fit this host, or is not as it was written, is refused: what its
header says, before anything is read; a layer, before it is used. Tensors are stored by the codec of activation.codec:
keys are scaled per channel over blocks of tokens, values per token over their channels, since outliers lie that
way (KIVI, 2402.02750). What a codec loses is measured where it is used, never assumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import transformers
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from memos.errors import CorruptBlob, FingerprintMismatch, InputError, PluginError, VaultError
from memos.extensions import Registry
from memos.infrastructure.host.fingerprint import require_same_host
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer, room_for

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

Kind = Literal["k", "v"]  # keys or values
Parts = dict[str, torch.Tensor]  # a tensor as stored; "" is the main part, ".scale" and the like stand beside it


@dataclass(frozen=True)
class Codec:
    """Parts to store of keys or values, [1, heads, tokens, head_dim], and the tensor again, as near as they allow.

    made: its rows are not as the memories were read alone, or not these only: few, made to stand for many, or with what
    they gain behind other memories. exact: every bit of those that were read alone is kept. encode: of memories, where
    they are read beside texts of people who do not exist.
    """

    pack: Callable[[Kind, torch.Tensor], Parts]
    unpack: Callable[[Kind, Parts, torch.dtype], torch.Tensor]
    made: bool = False
    exact: bool = False
    encode: Callable[[Host, Sequence[str], Sequence[str]], Activation] | None = None


codecs: Registry[Codec] = Registry("memos.codecs", "codec", ("auto",))  # by the names of activation.codec


def storing_codecs() -> tuple[str, ...]:
    """Names of the codecs that store KV as it was computed, which are all that load but those of rows that are made."""
    return tuple(name for name, codec in codecs.usable() if not codec.made)


def exact_codecs() -> tuple[str, ...]:
    """Names of the codecs that keep every bit of KV as it was read alone."""
    return tuple(name for name, codec in codecs.usable() if codec.exact)


def pack_raw(kind: Kind, tensor: torch.Tensor) -> Parts:
    return {"": tensor}


def unpack_float(kind: Kind, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    return parts[""].to(dtype)


RAW = Codec(pack_raw, unpack_float, exact=True)
TRAINED = Codec(pack_raw, unpack_float, made=True)
_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
}
LAYOUT = "kv/5 layer-major rotated base-0"
# in the fingerprint of KV that was made under adapters, or trained, or has states
_ADAPTERS, _TRAINED, _STATES, _PICTURES = "adapters", "trained rows", "states of transformers", "pictures"
_STATES_NOW = {_STATES: transformers.__version__}
_Place = tuple[int, int, str, list[int]]  # first byte, end, dtype, shape
_LayerPlaces = dict[str, _Place]  # "k" and "v", and the codec's scales beside them


def save_activation(
    activation: Activation, path: Path, fingerprint: dict[str, str], codec: str = "raw", after: Sequence[int] = ()
) -> None:
    """Tensors `layers.NNN.k` and `.v`, the codec's scales beside them, and `.sNNN`, which are states, weights or
    drifts, as they are; a layer can be read alone.

    after: ids that stand before those of `activation`, whose KV lies elsewhere. Raises VaultError where it cannot be
    written, as on a full disk, InputError and PluginError for a codec that is not there.
    """
    layers = [_packed(codecs.get(codec), layer) for layer in activation.layers]
    header = {
        "layout": LAYOUT,
        "codec": codec,
        "fingerprint": json.dumps(fingerprint | _made_by(activation), sort_keys=True),
        "ids": json.dumps(activation.ids),
        "after": _position(after),
        "checksums": json.dumps([_checksum(layer) for layer in layers]),
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


def _packed(codec: Codec, layer: Layer) -> Parts:
    keys, values, *states = layer
    parts = {f"s{n:03d}": state for n, state in enumerate(states)}
    codec = codec if keys.numel() else RAW
    parts |= {f"k{part}": stored for part, stored in codec.pack("k", keys).items()}
    parts |= {f"v{part}": stored for part, stored in codec.pack("v", values).items()}
    return {name: stored.cpu().contiguous() for name, stored in parts.items()}


def load_activation(
    path: Path, fingerprint: dict[str, str], device: torch.device, after: Sequence[int] = ()
) -> Activation:
    """Read a file back, or refuse it. Its layers come in the background; each is checked before it can be used.

    after: the ids that stand before those of the file.
    Raises FingerprintMismatch, naming the part that differs, and CorruptBlob for a file that is cut short
    or changed; for a layer, where it is used.
    """
    try:
        header = _read_header(path, fingerprint)
        file = path.open("rb", buffering=0)  # one for all layers: the system reads ahead in it
        if hasattr(os, "posix_fadvise"):  # the system reads further ahead then
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        places = _places(file)
        if list(places) != [f"layers.{n:03d}" for n in range(len(header.checksums))]:
            raise _damaged(path)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError, RuntimeError) as error:
        raise CorruptBlob(
            f"{path.name} is not a readable KV file ({error}); demote its cube, or promote its sources again"
        ) from error
    if _position(after) != header.after:
        raise FingerprintMismatch(f"{path.name} continues other tokens than those before it; promote its sources again")
    with room_for("a KV cache"):
        content = torch.empty(max(end for parts in places.values() for _, end, *_ in parts.values()), dtype=torch.uint8)
    dtype = getattr(torch, fingerprint["dtype"])
    layers = _StoredLayers(path, file, list(places.values()), header, content, device, dtype)
    arriving = Arriving(len(header.checksums), layers.bring, device)
    more = "s000" in places["layers.000"] and not header.states
    made = {"weighted": more and header.trained > 0, "drifts": more and not header.trained, "states": header.states}
    pictures, ends = header.seen
    return Activation(header.ids, arriving, header.adapters, header.trained, pictures=pictures, ends=ends, **made)


@dataclass(frozen=True)
class _Header:
    """What a file says of its tensors, once it fits this host and its digest is right."""

    codec: Codec
    ids: tuple[int, ...]
    after: str
    checksums: list[str]
    adapters: tuple[str, ...]  # which ones are wanted is for the request to say
    trained: int
    states: bool
    seen: tuple[tuple[str, ...], int]  # pictures, and where what follows stands


def _read_header(path: Path, fingerprint: dict[str, str]) -> _Header:
    """Raises FingerprintMismatch, CorruptBlob, and much else for a file that is no KV file."""
    with safe_open(path, "pt") as f:  # finds a file that is cut short
        header = f.metadata() or {}
    if header.get("layout") != LAYOUT:
        raise FingerprintMismatch(
            f"{path.name} has layout {header.get('layout')!r}, this host reads {LAYOUT!r}; promote its sources again"
        )
    made_by = dict(json.loads(header["fingerprint"]))
    adapters, trained = tuple(json.loads(made_by.pop(_ADAPTERS, "[]"))), int(made_by.pop(_TRAINED, "0"))
    states, (pictures, ends) = _STATES in made_by, json.loads(made_by.pop(_PICTURES, "[[], 0]"))
    require_same_host(made_by, fingerprint | (_STATES_NOW if states else {}), path.name)
    if _digest(header) != header["digest"]:
        raise _damaged(path)
    try:
        codec = codecs.get(header["codec"])
    except (InputError, PluginError) as error:
        raise CorruptBlob(f"{path.name} cannot be read: {error}; or promote its sources again") from error
    ids, checksums = tuple(json.loads(header["ids"])), json.loads(header["checksums"])
    return _Header(codec, ids, header["after"], checksums, adapters, trained, states, (tuple(pictures), int(ends)))


@dataclass(frozen=True)
class _StoredLayers:
    """The layers of an open file, each read, checked and unpacked when it is asked for."""

    path: Path
    file: FileIO
    places: list[_LayerPlaces]
    header: _Header
    content: torch.Tensor  # [bytes of the file], which the layers are read into
    device: torch.device
    dtype: torch.dtype
    read: list[int] = field(default_factory=list)  # layers that were read

    def bring(self, n: int) -> Layer:
        try:
            stored = _read(self.file, self.places[n], self.content)
            self.read.append(n)
            if len(self.read) == len(self.places):
                self.file.close()
        except (OSError, ValueError, RuntimeError) as error:  # gone, or cut short, since its header was read
            raise _damaged(self.path) from error
        if _checksum(stored) != self.header.checksums[n]:
            raise _damaged(self.path)
        parts = {name: tensor.to(self.device, non_blocking=True) for name, tensor in stored.items()}
        keys, values = ({name[1:]: t for name, t in parts.items() if name[0] == kind} for kind in "kv")
        states, unpack = (parts[name] for name in sorted(parts) if name[0] == "s"), self.header.codec.unpack
        if not keys[""].numel():  # the layer has states alone
            return keys[""], values[""], *states
        return unpack("k", keys, self.dtype), unpack("v", values, self.dtype), *states


def _digest(header: dict[str, str]) -> str:
    """XXH3 over all that a header says of its tensors."""
    content = "".join(header[part] for part in ("codec", "fingerprint", "ids", "after", "checksums"))
    return xxhash.xxh3_128(content.encode()).hexdigest()


def _made_by(activation: Activation) -> dict[str, str]:
    """What made KV beside the model: adapters that were active, by their digests, training, pictures, and for states,
    whose layout is no promise of transformers', its version."""
    made_by = dict[str, str]()
    if activation.under:
        made_by[_ADAPTERS] = json.dumps(activation.under)
    if activation.trained:
        made_by[_TRAINED] = str(activation.trained)
    if activation.pictures:
        made_by[_PICTURES] = json.dumps([activation.pictures, activation.ends])
    return made_by | (_STATES_NOW if activation.states else {})


def _position(ids: Sequence[int]) -> str:
    """How many ids stand before, and which."""
    return f"{len(ids)} {xxhash.xxh3_128(json.dumps(list(ids)).encode()).hexdigest()}"


def _damaged(path: Path) -> CorruptBlob:
    return CorruptBlob(f"{path.name} does not match its digest; demote its cube, or promote its sources again")


def _places(file: FileIO) -> dict[str, _LayerPlaces]:
    """For each layer, by name, where its parts lie in a file whose header safetensors has found sound."""
    begin = 8 + int.from_bytes(file.read(8), "little")
    entries = json.loads(file.read(begin - 8))
    out: dict[str, _LayerPlaces] = {}
    for name, entry in sorted(entries.items()):
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        stem, dot, part = name[:10], name[10:11], name[11:]  # layers.NNN.k
        if dot != "." or entry["dtype"] not in _DTYPES:
            raise ValueError(f"there is a tensor {name} of {entry['dtype']}")
        out.setdefault(stem, {})[part] = begin + first, begin + end, entry["dtype"], entry["shape"]
    return out


def _read(file: FileIO, places: _LayerPlaces, into: torch.Tensor) -> Parts:
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
