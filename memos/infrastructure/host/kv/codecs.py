"""Keys and values in fewer bytes. Knows tensors; knows no files.

Keys are scaled per channel over blocks of tokens, values per token over their channels, since outliers lie that
way (KIVI, 2402.02750). What a codec loses is measured where it is used, never assumed.
"""

from __future__ import annotations

from typing import Literal

import torch

Codec = Literal["raw", "bf16", "fp8", "int8", "int4"]
CODECS: tuple[Codec, ...] = ("raw", "bf16", "fp8", "int8", "int4")
_BLOCK = 64  # tokens that share the scales of the keys' channels
_FP8 = torch.finfo(torch.float8_e4m3fn).max


def pack(codec: Codec, kind: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Parts to store of keys (kind "k") or values ("v") [1, heads, tokens, head_dim]; "" is the main part."""
    match codec:
        case "raw":
            return {"": tensor}
        case "bf16":
            return {"": tensor.to(torch.bfloat16)}
        case "fp8":
            scale = _each(kind, tensor.float().abs(), "amax").clamp_min(1e-12) / _FP8
            return {"": (tensor.float() / _spread(scale, kind, tensor)).to(torch.float8_e4m3fn), ".scale": scale}
    levels = 255 if codec == "int8" else 15
    low, high = _each(kind, tensor.float(), "amin"), _each(kind, tensor.float(), "amax")
    step = (high - low).clamp_min(1e-12) / levels
    codes = ((tensor.float() - _spread(low, kind, tensor)) / _spread(step, kind, tensor)).round().clamp(0, levels)
    whole = codes.to(torch.uint8)
    if codec == "int4":  # two to a byte: head_dim is even wherever keys rotate
        whole = whole[..., 0::2] | (whole[..., 1::2] << 4)
    return {"": whole, ".low": low, ".step": step}


def unpack(codec: Codec, kind: str, parts: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The tensor again, as near as the codec keeps it."""
    main = parts[""]
    match codec:
        case "raw":
            return main
        case "bf16":
            return main.to(dtype)
        case "fp8":
            return (main.float() * _spread(parts[".scale"], kind, main)).to(dtype)
    if codec == "int4":
        main = torch.stack([main & 15, main >> 4], -1).flatten(-2)
    return (main.float() * _spread(parts[".step"], kind, main) + _spread(parts[".low"], kind, main)).to(dtype)


def _each(kind: str, tensor: torch.Tensor, of: Literal["amin", "amax"]) -> torch.Tensor:
    """[1, heads, blocks, head_dim] for keys, [1, heads, tokens, 1] for values."""
    if kind == "v":
        return getattr(tensor, of)(-1, keepdim=True)
    return torch.cat([getattr(block, of)(-2, keepdim=True) for block in tensor.split(_BLOCK, -2)], -2)


def _spread(scales: torch.Tensor, kind: str, like: torch.Tensor) -> torch.Tensor:
    """Scales as they apply to each element of `like`."""
    if kind == "v":
        return scales
    return scales.repeat_interleave(_BLOCK, -2)[..., : like.shape[-2], :]
