"""KV in fewer bits: as bfloat16, 8-bit floats, or integers between the extremes of a channel (KIVI, 2402.02750)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from memos.infrastructure.host.kv.files import Codec, Kind, Parts, unpack_float

_BLOCK_TOKENS = 64  # that share the scales of the keys' channels
_FP8_MAX = torch.finfo(torch.float8_e4m3fn).max


def _pack_bf16(kind: Kind, tensor: torch.Tensor) -> Parts:
    return {"": tensor.to(torch.bfloat16)}


def _pack_fp8(kind: Kind, tensor: torch.Tensor) -> Parts:
    scale = _extremes(kind, tensor.float().abs(), torch.amax).clamp_min(1e-12) / _FP8_MAX
    return {"": (tensor.float() / _spread(scale, kind, tensor)).to(torch.float8_e4m3fn), ".scale": scale}


def _unpack_fp8(kind: Kind, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    return (parts[""].float() * _spread(parts[".scale"], kind, parts[""])).to(dtype)


def _pack_integers(levels: int, kind: Kind, tensor: torch.Tensor) -> Parts:
    low, high = _extremes(kind, tensor.float(), torch.amin), _extremes(kind, tensor.float(), torch.amax)
    step = (high - low).clamp_min(1e-12) / levels
    codes = ((tensor.float() - _spread(low, kind, tensor)) / _spread(step, kind, tensor)).round().clamp(0, levels)
    return {"": codes.to(torch.uint8), ".low": low, ".step": step}


def _unpack_integers(kind: Kind, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    codes = parts[""]
    return (codes.float() * _spread(parts[".step"], kind, codes) + _spread(parts[".low"], kind, codes)).to(dtype)


def _pack_int4(kind: Kind, tensor: torch.Tensor) -> Parts:
    parts = _pack_integers(15, kind, tensor)
    codes = parts[""]
    # two to a byte: head_dim is even wherever keys rotate
    return parts | {"": codes[..., 0::2] | (codes[..., 1::2] << 4)}


def _unpack_int4(kind: Kind, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    codes = torch.stack([parts[""] & 15, parts[""] >> 4], -1).flatten(-2)
    return _unpack_integers(kind, parts | {"": codes}, dtype)


def _extremes(kind: Kind, tensor: torch.Tensor, extreme: Callable[..., torch.Tensor]) -> torch.Tensor:
    """The least or largest values: [1, heads, blocks, head_dim] for keys, [1, heads, tokens, 1] for values."""
    if kind == "v":
        return extreme(tensor, -1, keepdim=True)
    return torch.cat([extreme(block, -2, keepdim=True) for block in tensor.split(_BLOCK_TOKENS, -2)], -2)


def _spread(scales: torch.Tensor, kind: Kind, like: torch.Tensor) -> torch.Tensor:
    """Scales as they apply to each element of `like`."""
    if kind == "v":
        return scales
    return scales.repeat_interleave(_BLOCK_TOKENS, -2)[..., : like.shape[-2], :]


BF16 = Codec(_pack_bf16, unpack_float)
FP8 = Codec(_pack_fp8, _unpack_fp8)
INT8 = Codec(partial(_pack_integers, 255), _unpack_integers)
INT4 = Codec(_pack_int4, _unpack_int4)
