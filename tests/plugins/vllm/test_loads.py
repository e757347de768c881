"""What the scheduler is promised, and what reaches the pages."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.plugins.vllm.exchange import Exchange, model_parts
from memos.plugins.vllm.loads import Asked, Load, Loads, PagedLayout, Promises
from tests.plugins.vllm.paged import BLOCK, Pages, layout_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


@pytest.fixture(scope="module")
def kv(host: Host) -> Activation:
    return host.encode(["Mira lives in Lisbon.", "Tom is a nurse."])


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path, 1 << 30)


def promises(host: Host, exchange: Exchange, layout: PagedLayout | None = None) -> Promises:
    return Promises(exchange, model_parts(host.fingerprint), layout or layout_of(host))


def test_all_rows_but_the_last_token_of_the_prompt(host: Host, kv: Activation, exchange: Exchange) -> None:
    name, promised = exchange.put(kv, host.fingerprint), promises(host, exchange)
    assert promised.rows("longer", Asked(name, name, (*kv.ids, 7))) == len(kv.ids)
    assert promised.rows("just these", Asked(name, name, kv.ids)) == len(kv.ids) - 1


@pytest.mark.parametrize(
    "case", ["ids", "shorter", "salt", "no salt", "no file", "no name", "layers", "heads", "model"]
)
def test_what_does_not_fit_is_text_and_said(
    case: str, host: Host, kv: Activation, exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    name, ids = exchange.put(kv, host.fingerprint), (*kv.ids, 7)
    asked, layout, promised = Asked(name, name, ids), layout_of(host), promises(host, exchange)
    match case:
        case "ids":
            asked = replace(asked, ids=(*ids[:3], ids[3] + 1, *ids[4:]))
        case "shorter":
            asked = replace(asked, ids=ids[:5])
        case "salt":
            asked = replace(asked, salt="f" * 32)
        case "no salt":
            asked = replace(asked, salt=None)
        case "no file":
            asked = Asked("0" * 32, "0" * 32, ids)
        case "no name":
            asked = Asked(["x"], "x", ids)
        case "layers":
            promised = promises(host, exchange, replace(layout, layers=layout.layers + 1))
        case "heads":
            promised = promises(host, exchange, replace(layout, heads=layout.heads * 2))
        case "model":
            other = model_parts(host.fingerprint) | {"weights": "another"}
            promised = Promises(exchange, other, layout)
    with caplog.at_level(logging.WARNING, "memos.vllm"):
        assert promised.rows("r", asked) == 0
    assert "request r is answered from text" in caplog.text


@pytest.mark.parametrize("cached", [0, BLOCK, 2 * BLOCK])
def test_rows_land_in_their_slots_and_nowhere_else(cached: int, host: Host, kv: Activation, exchange: Exchange) -> None:
    """Also where vLLM has some of the first blocks already."""
    name, promised = exchange.put(kv, host.fingerprint), promises(host, exchange)
    rows = promised.rows("r", Asked(name, name, (*kv.ids, 7)))
    blocks = [9, 3, 20, 5, 11, 30, 1, 2][: rows // BLOCK + 2]
    promised.allocated("r", name, rows - cached, blocks)
    (load,) = promised.take()
    assert promised.take() == () and load == Load(name, cached, rows, tuple(blocks))
    pages, loads = Pages(layout_of(host)), Loads(exchange, model_parts(host.fingerprint), layout_of(host), CPU)
    loads.begin([load])
    for n in range(len(kv.layers)):
        loads.layer(n, pages.write)
    loads.end()
    assert loads.failed() == set()
    slots = torch.tensor([blocks[row // BLOCK] * BLOCK + row % BLOCK for row in range(cached, rows)])
    for (keys, values), (k, v) in zip(kv.layers, pages.read(slots, kv.ids).layers, strict=True):
        assert torch.equal(k, keys[:, :, cached:]) and torch.equal(v, values[:, :, cached:])
    pages.content[:, :, slots] = torch.nan
    assert pages.content.isnan().all()


def test_a_file_that_goes_or_changes_is_named_by_its_blocks(
    host: Host, kv: Activation, exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    other = host.encode(["Anna has a cat."])
    sound, damaged = exchange.put(other, host.fingerprint), exchange.put(kv, host.fingerprint)
    path = exchange.folder / f"{damaged}.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # of the last layer
    path.write_bytes(content)
    gone = Load("0" * 32, 0, BLOCK, (40,))
    coming = [Load(sound, 0, len(other.ids), (0, 1, 2)), Load(damaged, BLOCK, 2 * BLOCK + 1, (10, 11, 12, 13)), gone]
    pages, loads = Pages(layout_of(host)), Loads(exchange, model_parts(host.fingerprint), layout_of(host), CPU)
    loads.begin(coming)
    for n in range(len(kv.layers)):
        loads.layer(n, pages.write)
    assert loads.failed() == {11, 12, 40} and loads.failed() == set()
    assert "does not match its digest" in caplog.text
    read = pages.read(coming[0].slots(BLOCK), other.ids)
    assert torch.equal(read.layers[-1][0], other.layers[-1][0]), "the others are loaded all the same"


def test_a_request_that_has_ended_is_forgotten(host: Host, kv: Activation, exchange: Exchange) -> None:
    name, promised = exchange.put(kv, host.fingerprint), promises(host, exchange)
    promised.rows("r", Asked(name, name, (*kv.ids, 7)))
    promised.allocated("r", name, len(kv.ids), [0, 1, 2, 3, 4, 5, 6, 7])
    promised.ended("r")
    assert promised.take() == ()
    exchange.clear()
    assert promised.rows("r", Asked(name, name, (*kv.ids, 7))) == 0, "a new request of that name is looked at anew"


def test_a_load_is_written_in_its_step_alone(host: Host, kv: Activation, exchange: Exchange) -> None:
    """vLLM may give its blocks to another request right after."""
    load = Load(exchange.put(kv, host.fingerprint), 0, len(kv.ids), tuple(range(20)))
    pages, loads = Pages(layout_of(host)), Loads(exchange, model_parts(host.fingerprint), layout_of(host), CPU)
    for step in range(2):
        loads.begin([load] if step == 0 else [])
        for n in range(len(kv.layers)):
            loads.layer(n, pages.write)
        loads.end()
        assert pages.content.isnan().all() == (step == 1) and loads.failed() == set()
        pages.content[:] = torch.nan


def test_a_layer_that_vllm_does_not_ask_for_is_a_failure(host: Host, kv: Activation, exchange: Exchange) -> None:
    load = Load(exchange.put(kv, host.fingerprint), 0, BLOCK, (5,))
    pages, loads = Pages(layout_of(host)), Loads(exchange, model_parts(host.fingerprint), layout_of(host), CPU)
    loads.begin([load])
    loads.layer(0, pages.write)
    loads.end()
    assert loads.failed() == {5}
