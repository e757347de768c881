"""KV travels to vLLM as files that only fit their own model, and nobody else can name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memos.config import ModelConfig
from memos.errors import CorruptBlob, FingerprintMismatch, InputError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.plugins.vllm.exchange import Exchange, model_parts

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


@pytest.fixture(scope="module")
def kv(host: Host) -> Activation:
    return host.encode(["Mira lives in Lisbon."])


def test_what_is_read_is_what_was_written(host: Host, kv: Activation, tmp_path: Path) -> None:
    exchange, identity = Exchange(tmp_path, 1 << 30), model_parts(host.fingerprint)
    name = exchange.put(kv, host.fingerprint)
    header, back = exchange.header(name, identity), exchange.load(name, identity, CPU)
    assert header.ids == back.ids == kv.ids and header.layers == len(kv.layers)
    assert header.shape == tuple(kv.layers[0][0].shape[1:])
    for one, two in zip(kv.layers, back.layers, strict=True):
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


def test_equal_kv_shares_a_file_and_other_kv_does_not(host: Host, kv: Activation, tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, 1 << 30)
    name = exchange.put(kv, host.fingerprint)
    assert exchange.put(replace(kv, layers=tuple(kv.layers)), host.fingerprint) == name
    changed = tuple((k + 1e-4, v) for k, v in kv.layers)
    assert exchange.put(replace(kv, layers=changed), host.fingerprint) != name
    assert Exchange(tmp_path, 1 << 30).put(kv, host.fingerprint) != name, "names are keyed by who writes"


def test_the_least_recently_used_leaves(host: Host, kv: Activation, tmp_path: Path) -> None:
    others = [host.encode([f"Tom lives in {place}."]) for place in ("Oslo", "Rome")]
    size = int(max(activation.bytes for activation in (kv, *others)) * 1.2)
    exchange = Exchange(tmp_path, 2 * size)
    first, second = (exchange.put(activation, host.fingerprint) for activation in (kv, others[0]))
    assert exchange.put(kv, host.fingerprint) == first  # used again
    third = exchange.put(others[1], host.fingerprint)
    assert {path.stem for path in tmp_path.glob("*.safetensors")} == {first, third} and second != first
    exchange.clear()
    assert not list(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("part", ["weights", "tokenizer", "config", "dtype"])
def test_kv_of_another_model_is_refused_by_its_part(part: str, host: Host, kv: Activation, tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, 1 << 30)
    name = exchange.put(kv, host.fingerprint)
    with pytest.raises(FingerprintMismatch, match=part):
        exchange.header(name, model_parts(host.fingerprint) | {part: "another"})


def test_the_template_and_the_adapters_are_the_requests_own_matter(host: Host, kv: Activation, tmp_path: Path) -> None:
    exchange, under = Exchange(tmp_path, 1 << 30), replace(kv, under=("an adapter",))
    name = exchange.put(under, host.fingerprint | {"template": "another"})
    back = exchange.load(name, model_parts(host.fingerprint), CPU)
    assert back.under == ("an adapter",) and len(list(back.layers)) == len(kv.layers)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "0" * 31, "G" * 32, "0" * 32])
def test_only_files_of_the_exchange_can_be_named(name: str, host: Host, tmp_path: Path) -> None:
    with pytest.raises(CorruptBlob):
        Exchange(tmp_path).header(name, model_parts(host.fingerprint))


def test_a_changed_byte_is_told_where_its_layer_is_used(host: Host, kv: Activation, tmp_path: Path) -> None:
    exchange, identity = Exchange(tmp_path, 1 << 30), model_parts(host.fingerprint)
    path = tmp_path / f"{(name := exchange.put(kv, host.fingerprint))}.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptBlob):
        list(exchange.load(name, identity, CPU).layers)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    with pytest.raises(InputError, match="chmod 700"):
        Exchange(tmp_path)


def test_what_vllm_is_can_be_asked(host: Host, tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    assert exchange.identity() is None
    exchange.announce(model_parts(host.fingerprint))
    assert Exchange(tmp_path).identity() == model_parts(host.fingerprint)
