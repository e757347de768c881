"""Pages of KV files by somebody else's keys, and back, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from memos.config import ModelConfig
from memos.errors import NotFound
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.plugins.kv_readers.folder import KVFolder, PageKey
from memos.plugins.vllm.exchange import model_parts

PAGE = 8


def keys_of(ids: Sequence[int]) -> list[PageKey]:
    """Each page by all tokens up to its end; the last may be shorter."""
    ends = [*range(PAGE, len(ids), PAGE), len(ids)]
    return [PageKey(sha256(repr(tuple(ids[:end])).encode()).hexdigest(), (end - 1) // PAGE * PAGE, end) for end in ends]


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


@pytest.fixture(scope="module")
def kv(host: Host) -> Activation:
    return host.encode(["Mira lives in Lisbon.", "Tom is a nurse.", "Anna has a cat."])


@pytest.fixture
def folder(host: Host, tmp_path: Path) -> KVFolder:
    return KVFolder(tmp_path, model_parts(host.fingerprint), keys_of)


def same(one: Activation, other: Activation) -> bool:
    return one.ids == other.ids and all(
        torch.equal(a, b) for x, y in zip(one.layers, other.layers, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_a_page_is_the_rows_of_the_file(host: Host, kv: Activation, folder: KVFolder) -> None:
    first, *_, last = keys_of(kv.ids)
    assert not folder.has(first.key) and folder.page(first.key) is None
    host.save_kv(kv, folder.folder / "one.safetensors")
    for key in (first, last):
        page = folder.page(key.key)
        assert folder.has(key.key) and page is not None
        assert page.shape == (2, len(kv.layers), key.end - key.first, *kv.layers[0][0].shape[1:4:2])
        for n, (keys, values) in enumerate(kv.layers):
            assert torch.equal(page[0, n], keys[0, :, key.first : key.end].transpose(0, 1))
            assert torch.equal(page[1, n], values[0, :, key.first : key.end].transpose(0, 1))


def test_what_another_has_stored_comes_back_as_a_file_of_ours(
    host: Host, kv: Activation, folder: KVFolder, tmp_path: Path
) -> None:
    host.save_kv(kv, folder.folder / "one.safetensors")
    other = KVFolder(tmp_path / "other", model_parts(host.fingerprint), keys_of)
    for key in keys_of(kv.ids):
        page = folder.page(key.key)
        assert page is not None
        other.put(key.key, page)
    back = other.prefix((*kv.ids, 7, 8, 9))
    whole = len(kv.ids) // PAGE * PAGE  # the last page of the longer text has another key
    assert back.ids == kv.ids[:whole] and same(back, kv.upto(whole)) and same(other.prefix(kv.ids), kv)
    path = tmp_path / "back.safetensors"
    host.save_kv(other.prefix(kv.ids), path)
    assert same(host.load_kv(path), kv)
    assert other.drop(keys_of(kv.ids)[0].key) and not other.drop("never")
    with pytest.raises(NotFound, match="no page"):
        other.prefix(kv.ids)


@pytest.mark.parametrize("case", ["another model", "adapters", "no file of ours"])
def test_files_that_are_not_the_exact_kv_of_this_model_are_passed_over(
    case: str, host: Host, kv: Activation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity, path = model_parts(host.fingerprint), tmp_path / "one.safetensors"
    match case:
        case "another model":
            host.save_kv(kv, path)
            identity |= {"weights": "another"}
        case "adapters":
            host.save_kv(replace(kv, under=("an adapter",)), path)
        case _:
            path.write_bytes(b"nonsense")
    assert KVFolder(tmp_path, identity, keys_of).page(keys_of(kv.ids)[0].key) is None
    assert "one.safetensors is passed over" in caplog.text


@pytest.mark.parametrize("ours", [True, False])
def test_damage_is_said_and_not_served(
    ours: bool, host: Host, kv: Activation, folder: KVFolder, caplog: pytest.LogCaptureFixture
) -> None:
    key = keys_of(kv.ids)[0].key
    path = folder.folder / "one.safetensors"
    host.save_kv(kv, path)
    if not ours:
        page = folder.page(key)
        assert page is not None
        path.unlink()
        folder = KVFolder(folder.folder, model_parts(host.fingerprint), keys_of)
        folder.put(key, page)
        [path] = (folder.folder / "pages").iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert folder.page(key) is None and "is not served" in caplog.text
