"""KV that arrives while the model reads, and the tiers that it lies in."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config

from memos.bench.architectures import tiny
from memos.config import DecodeConfig, FidelityConfig
from memos.errors import CorruptBlob, FingerprintMismatch, NoRoom, VaultError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv import cache
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer, join, room_for
from memos.infrastructure.host.kv.tiers import KVTiers
from memos.infrastructure.host.model.measure import drop_from_page_cache, in_page_cache
from memos.infrastructure.host.request import Request

CPU = torch.device("cpu")
MEMORIES = ("Mira: I live in Lisbon.", "Tom is a nurse.", "Mira: I drink tea.")
ASKED = ({"role": "user", "content": "Where does Mira live?"},)


@pytest.fixture(scope="module")
def kept(host: Host) -> Activation:
    return host.encode(MEMORIES)


# layers on their way


def test_a_forward_begins_before_the_last_layer_is_there(host: Host, kept: Activation) -> None:
    """The last layer comes only once the first has been read: a forward that waited for all would never end."""
    first_is_read, given = threading.Event(), list(kept.layers)

    class Watched(Arriving):
        def __getitem__(self, n: int) -> Layer:  # type: ignore[override]
            layer = super().__getitem__(n)
            first_is_read.set()
            return layer

    def bring(n: int) -> Layer:
        if n == len(given) - 1:
            assert first_is_read.wait(30)
        return given[n]

    request = Request(ASKED, MEMORIES, (Activation(kept.ids, Watched(len(given), bring, CPU)),))
    over = host.logits(request)
    assert torch.equal(over, host.logits(replace(request, pasts=(kept,))))


def test_what_fails_on_the_way_is_raised_before_a_token(host: Host, kept: Activation) -> None:
    def bring(n: int) -> Layer:
        if n == 2:
            raise CorruptBlob("the third layer")
        return kept.layers[n]

    request = Request(ASKED, MEMORIES, (Activation(kept.ids, Arriving(len(kept.layers), bring, CPU)),))
    said: list[str] = []
    with pytest.raises(CorruptBlob, match="the third layer"):
        said.extend(host.stream(request))
    assert said == []


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3"])
def test_layers_on_their_way_are_put_together_alike(host: Host, tmp_path: Path, level: str) -> None:
    pieces = (host.encode(MEMORIES[:1]), host.encode(MEMORIES[1:]))
    for n, piece in enumerate(pieces):
        host.save_kv(piece, tmp_path / f"{n}")
    request = Request(ASKED, MEMORIES, pieces, fidelity=FidelityConfig(level=level))  # type: ignore[arg-type]
    there = host.logits(request)
    coming = tuple(host.load_kv(tmp_path / f"{n}") for n in range(2))
    assert torch.equal(host.logits(replace(request, pasts=coming)), there)


def test_views_and_continuations_of_what_arrives_are_those_of_what_is_there(host: Host, kept: Activation) -> None:
    coming = Activation(kept.ids, Arriving(len(kept.layers), lambda n: kept.layers[n], CPU))
    head = coming.upto(5)
    assert isinstance(head.layers, Arriving) and head.ids == kept.ids[:5]
    whole = join([head, coming.since(5)])
    assert whole.digest() == kept.digest() and whole.ids == kept.ids


def test_layers_come_though_the_interpreter_is_shutting_down(kept: Activation, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what is prefetched does where a script ends without `close`."""
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(cache, "_bringers", ended)
    assert list(Arriving(len(kept.layers), lambda n: kept.layers[n], CPU)) == list(kept.layers)
    assert Arriving(1, lambda n: kept.layers[99], CPU).failed


def test_memory_that_is_not_there_is_named(host: Host, kept: Activation) -> None:
    """The allocator of torch itself refuses: nobody has four exbibytes."""

    def bring(n: int) -> Layer:
        torch.empty(1 << 60)
        return kept.layers[n]

    request = Request(ASKED, MEMORIES, (Activation(kept.ids, Arriving(len(kept.layers), bring, CPU)),))
    with pytest.raises(NoRoom, match="no memory left for a KV cache .*; set scheduler.device_kv_bytes or host_kv"):
        host.answer(request)
    with pytest.raises(NoRoom, match="this request"), room_for("this request"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), NotImplementedError("Half"), RecursionError()])
def test_another_error_of_the_forward_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, room_for("this request"):
        raise error
    assert raised.value is error


def test_python_itself_may_be_out_of_memory() -> None:
    with pytest.raises(NoRoom, match="no memory left for this request .MemoryError"), room_for("this request"):
        raise MemoryError


# files that continue others


def test_a_file_continues_only_what_it_was_written_after(host: Host, kept: Activation, tmp_path: Path) -> None:
    host.save_kv(kept.since(6), tmp_path / "kv", after=kept.ids[:6])
    own = host.load_kv(tmp_path / "kv", kept.ids[:6])
    assert join([kept.upto(6), own]).digest() == kept.digest()
    for other in ((), kept.ids[:5], (*kept.ids[:5], 0)):
        with pytest.raises(FingerprintMismatch, match="continues other tokens"):
            host.load_kv(tmp_path / "kv", other)
    request = Request(ASKED, MEMORIES, (own,))
    with pytest.raises(FingerprintMismatch, match="other memories"):
        host.answer(request)


def test_a_disk_that_is_full_is_named_and_nothing_stays(
    host: Host, kept: Activation, tmp_path: Path, full_disk: Callable[[], AbstractContextManager[None]]
) -> None:
    with full_disk(), pytest.raises(VaultError, match="was not written .*; nothing of it is kept.*make room in"):
        host.save_kv(kept, tmp_path / "kv")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_memory_is_told_from_one_on_the_disk(host: Host, kept: Activation, tmp_path: Path) -> None:
    path = tmp_path / "kv"
    host.save_kv(kept, path)

    def waits() -> bool:
        """As the system itself says of the first byte; some file systems never do."""
        with path.open("rb") as file:
            try:
                return not os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False

    def told_apart() -> bool:
        drop_from_page_cache(path)
        waited = waits()
        path.read_bytes()  # being asked may send for a page, and one on its way cannot be dropped
        drop_from_page_cache(path)
        return in_page_cache(path) is not waited

    assert any(told_apart() for _ in range(5))  # the system drops pages when it has time to
    path.read_bytes()
    assert in_page_cache(path)


# tiers


def test_what_was_brought_is_not_loaded_again(kept: Activation) -> None:
    kept = replace(kept, layers=tuple((k.cpu(), v.cpu()) for k, v in kept.layers))
    tiers, loads = KVTiers(CPU), 0

    def load() -> Activation:
        nonlocal loads
        loads += 1
        return kept

    for _ in range(3):
        assert tiers.bring("a", load) is kept
    assert (loads, tiers.tier("a"), tiers.tier("b"), tiers.all()) == (1, "host", "disk", {"a": kept})
    tiers.settle({"a": "host"})
    assert tiers.resident("a") is kept
    tiers.settle({})
    assert tiers.resident("a") is None and tiers.tier("a") == "disk"
    tiers.bring("a", load)
    assert loads == 2


def test_what_cannot_be_loaded_is_not_held(kept: Activation) -> None:
    def load() -> Activation:
        raise CorruptBlob("gone")

    tiers = KVTiers(CPU)
    with pytest.raises(CorruptBlob):
        tiers.bring("a", load)
    assert tiers.tier("a") == "disk"
    tiers.bring("a", lambda: kept)
    tiers.drop({"a"})
    assert tiers.resident("a") is None


@pytest.mark.parametrize("missing", ["first", "last"])
def test_what_did_not_come_is_loaded_again(kept: Activation, missing: str) -> None:
    """Memory that was full while it was brought ahead may have room now."""
    layers, lost = len(kept.layers), 0 if missing == "first" else len(kept.layers) - 1

    def full(n: int) -> Layer:
        if n == lost:
            raise MemoryError
        return kept.layers[n]

    tiers, arriving = KVTiers(CPU), Arriving(layers, full, CPU)
    tiers.bring("a", lambda: replace(kept, layers=arriving))
    with pytest.raises(NoRoom, match="there is no memory left for a KV cache"):
        arriving[lost]
    assert tiers.bring("a", lambda: kept) is kept and tiers.resident("a") is kept


# used often


@pytest.mark.slow
def test_a_thousand_uses_leave_the_digest_as_it_was(host: Host, kept: Activation) -> None:
    others = (host.encode(MEMORIES[:1]), host.encode(MEMORIES[1:]))
    before = [a.digest() for a in (kept, *others)]
    one = DecodeConfig(max_new_tokens=1)
    for n in range(1000):
        level = FidelityConfig(level=("L0", "L1", "L2", "L3")[n % 4])  # type: ignore[arg-type]
        pasts = (kept,) if n % 2 else others
        host.answer(Request(ASKED, MEMORIES, pasts, fidelity=level), one)
    assert [a.digest() for a in (kept, *others)] == before


# KV that an answer brings


@pytest.mark.parametrize("beams", [1, 2])
def test_an_answer_brings_the_kv_of_what_was_read(host: Host, kept: Activation, beams: int) -> None:
    decode = DecodeConfig(max_new_tokens=6, beams=beams)
    done = host.answer(Request(ASKED, MEMORIES, (kept,), keep=True), decode)
    assert done.kv
    prompt = host.prompts.build(MEMORIES, ASKED)
    assert done.kv.ids[: len(prompt)] == prompt.prefix + prompt.tail
    assert done.kv.ids[len(prompt) :] == (done.ids[: len(done.kv.ids) - len(prompt)] if beams == 1 else ())
    for (k, v), (k2, v2) in zip(done.kv.layers, Host.encode(host, MEMORIES).layers, strict=True):
        n = k2.shape[-2]
        assert_close(k[..., :n, :], k2, atol=1e-4, rtol=1e-4)
        assert_close(v[..., :n, :], v2, atol=1e-4, rtol=1e-4)


# this machine, measured


@pytest.mark.parametrize("positions", [64, 100, 164, 600])
def test_a_model_with_few_positions_is_measured_within_them(host: Host, tmp_path: Path, positions: int) -> None:
    config = GPT2Config(vocab_size=len(host.tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=positions)
    few = Host(AutoModelForCausalLM.from_config(config).eval(), host.tokenizer)
    figures = few.measure(tmp_path, ("raw",))
    assert len(figures["read"]) >= 2 and all(seconds > 0 for _, seconds in figures["read"])
    assert figures["load"].keys() == {"cache raw", "disk raw"}
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_kv_is_measured_reading(host: Host, tmp_path: Path) -> None:
    stateless = Host(tiny("rwkv"), host.tokenizer)
    assert not stateless.capability.exact
    figures = stateless.measure(tmp_path, ("raw",))
    assert figures["load"] == {} and len(figures["read"]) >= 2


def test_tiers_hold_under_many_threads(kept: Activation) -> None:
    """Nothing is lost, nothing comes back that was dropped, and nobody stumbles over somebody else's change."""
    tiers, failed = KVTiers(CPU), list[BaseException]()

    def work(n: int) -> None:
        try:
            for turn in range(300):
                tiers.bring(f"{turn % 7}", lambda: kept)
                tiers.settle({name: "host" for name in tiers.all() if name != f"{n}"})
                tiers.drop({f"{(turn + n) % 7}"})
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    tiers.drop(set(tiers.all()))
    assert tiers.all() == {}
