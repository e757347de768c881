"""Keys and values in fewer bytes: how far they come back, and that the bytes are fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from memos.errors import CorruptBlob
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.files import Kind, codecs, storing_codecs
from memos.infrastructure.host.request import Request

# codec: (bits a number without scales, largest error as a share of the range its scale covers)
LOSS: dict[str, tuple[int, float]] = {
    "raw": (32, 0.0),
    "bf16": (16, 2**-8),
    "fp8": (8, 2**-4),
    "int8": (8, 0.5 / 255 + 1e-6),
    "int4": (4, 0.5 / 15 + 1e-6),
}
MEMORIES = ("Mira lives in Lisbon.", "Tom is a nurse.", "Nadia keeps a grey cat.", "Tom plays the harp.")
ASKED = ({"role": "user", "content": "What does Tom play?"},)


def test_every_codec_is_judged() -> None:
    assert set(LOSS) == set(storing_codecs())


@pytest.mark.parametrize("codec", LOSS)
@pytest.mark.parametrize("kind", ["k", "v"])
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_what_comes_back_is_near(codec: str, kind: Kind, tokens: int) -> None:
    tensor = torch.randn(1, 2, tokens, 16, generator=torch.Generator().manual_seed(0))
    tensor[..., 3] *= 40  # a channel of outliers, as keys have them
    parts = codecs.get(codec).pack(kind, tensor)
    back = codecs.get(codec).unpack(kind, parts, tensor.dtype)
    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    axis = -1 if kind == "v" else -2
    spread = tensor.amax(axis, keepdim=True) - tensor.amin(axis, keepdim=True)
    reach = torch.maximum(spread, tensor.abs().amax(axis, keepdim=True))
    assert ((back - tensor).abs() <= LOSS[codec][1] * reach).all()
    assert parts[""].numel() * parts[""].element_size() * 8 == LOSS[codec][0] * tensor.numel()


def test_a_channel_of_outliers_does_not_spoil_the_keys_of_others() -> None:
    keys = torch.randn(1, 1, 64, 16, generator=torch.Generator().manual_seed(1))
    loud = keys.clone()
    loud[..., 0] *= 1000
    int8 = codecs.get("int8")
    error = [(int8.unpack("k", int8.pack("k", k), k.dtype) - k)[..., 1:].abs().max() for k in (keys, loud)]
    assert_close(error[0], error[1])


@pytest.mark.parametrize("codec", LOSS)
def test_a_file_of_each_codec_answers_and_tells_damage(host: Host, tmp_path: Path, codec: str) -> None:
    made, path = host.encode(MEMORIES), tmp_path / "kv.safetensors"
    host.save_kv(made, path, codec)
    kl = host.nearness(Request(ASKED, MEMORIES, (host.load_kv(path),))).kl
    assert kl <= {"raw": 1e-9, "bf16": 1e-3, "fp8": 0.05, "int8": 0.01, "int4": 1.0}[codec]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptBlob, match="does not match its digest"):
        host.load_kv(path).digest()


def test_fewer_bits_make_smaller_files_and_lose_more(host: Host, tmp_path: Path) -> None:
    made = host.encode(MEMORIES * 8)
    sizes, losses = [], []
    for codec in ("raw", "bf16", "int8", "int4"):
        host.save_kv(made, tmp_path / codec, codec)
        sizes.append((tmp_path / codec).stat().st_size)
        back = host.load_kv(tmp_path / codec)
        losses.append(
            max(
                float((a - b).abs().max())
                for x, y in zip(back.layers, made.layers, strict=True)
                for a, b in zip(x, y, strict=True)
            )
        )
    assert sizes == sorted(sizes, reverse=True) and losses == sorted(losses)
