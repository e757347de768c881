"""KV that knows what it gains behind other memories."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from memos.config import FidelityConfig, ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer
from memos.infrastructure.host.kv.compose import compose
from memos.infrastructure.host.request import Request
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.codecs.wrapped import encode_wrapped, with_drift
from tests.infrastructure.host.kv.test_compose import CUBES

PEOPLE = [f"Person {n} has a dog called Rex{n}." for n in range(200)]


@pytest.fixture(scope="module")
def small() -> Host:
    return Host.load(ModelConfig())


def distance(one: Activation, other: Activation, first: int) -> float:
    """Of keys and values from a row on: sum of squares."""
    pairs = zip(one.since(first).layers, other.since(first).layers, strict=True)
    return sum(float((a - b).square().sum()) for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))


def test_behind_just_what_it_was_read_behind_it_comes_nearer_the_more_of_it_there_is(small: Host) -> None:
    """A drift of one reading is all that there is to gain there; of it, more has come the further behind it stands."""
    motion, head = small.capability.motion, len(small.head)
    assert motion is not None
    alone, shares = small.encode(CUBES[2]), list[float]()
    for count in (1, 4, 16):
        before, full = small.encode(PEOPLE[:count]), small.encode((*PEOPLE[:count], *CUBES[2]))
        wrapped = with_drift(alone, [full], head, motion)
        near, far = (compose([before, piece], head, motion) for piece in (wrapped, alone))
        assert near.ids == full.ids and not near.drifts
        shares.append(distance(near, full, len(before.ids)) / distance(far, full, len(before.ids)))
    assert shares[0] < 1 and all(later < sooner / 2 for sooner, later in pairwise(shares))


def test_behind_others_it_is_nearer_to_the_full_prompt_than_kv_as_it_is(small: Host) -> None:
    motion, head = small.capability.motion, len(small.head)
    assert motion is not None
    others = [text for context in MemReader().contrasts((), (), 0) for text in context.memories]
    for first in CUBES[:2]:
        before, alone, full = small.encode(first), small.encode(CUBES[2]), small.encode((*first, *CUBES[2]))
        wrapped = encode_wrapped(small, CUBES[2], others)
        near, far = (compose([before, piece], head, motion) for piece in (wrapped, alone))
        assert distance(near, full, len(before.ids)) < 0.8 * distance(far, full, len(before.ids))


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3"])
def test_alone_and_where_it_is_first_it_is_as_it_was_read(small: Host, level: str) -> None:
    wrapped, plain = encode_wrapped(small, CUBES[0], PEOPLE), small.encode(CUBES[0])
    assert wrapped.drifts and wrapped.alone.digest() == plain.digest() and wrapped.alone is wrapped.alone
    ask = ({"role": "user", "content": "Where does Mira live?"},)
    fidelity = FidelityConfig.model_validate({"level": level})
    for cubes in (CUBES[:1], CUBES[:2]):
        later = tuple(small.encode(cube) for cube in cubes[1:])
        memories = tuple(text for cube in cubes for text in cube)
        mine, theirs = (
            small.answer(Request(ask, memories, (first, *later), fidelity=fidelity)) for first in (wrapped, plain)
        )
        assert mine.ids == theirs.ids and mine.past_tokens == theirs.past_tokens > 0


def test_a_file_keeps_it_whole(small: Host, tmp_path: Path) -> None:
    wrapped = encode_wrapped(small, CUBES[1], PEOPLE)
    small.save_kv(wrapped, tmp_path / "kv", "wrapped")
    back = small.load_kv(tmp_path / "kv")
    assert back.drifts and back.digest() == wrapped.digest()
    for layer in back.layers:
        keys, values, *drift = layer
        assert [t.shape for t in drift] == [keys.shape, values.shape]
        assert not any(t[..., : len(small.head), :].float().any() for t in drift)  # the head is the same everywhere


def test_a_drift_beyond_what_its_numbers_can_say_is_cut_short(small: Host) -> None:
    motion, head = small.capability.motion, len(small.head)
    assert motion is not None
    alone, full = small.encode(CUBES[2]), small.encode((*CUBES[0], *CUBES[2]))
    far = replace(full, layers=tuple((keys * 1e4, values * 1e4) for keys, values in full.layers))
    for layer in with_drift(alone, [far], head, motion).layers:
        assert all(torch.isfinite(drift.float()).all() for drift in layer[2:])


def test_without_others_there_is_nothing_to_gain(small: Host) -> None:
    alone, plain = encode_wrapped(small, CUBES[0], []), small.encode(CUBES[0])
    assert not alone.drifts and alone.digest() == plain.digest()
    assert torch.equal(alone.layers[0][0], plain.layers[0][0])


def test_what_is_still_on_its_way_is_composed_once_it_is_there(small: Host) -> None:
    """Layers of each piece and of the composition come from the same few threads."""
    motion, head = small.capability.motion, len(small.head)
    assert motion is not None
    pieces = [encode_wrapped(small, cube, PEOPLE) for cube in CUBES]
    late = [replace(one, layers=Arriving(len(one.layers), _slow(one), torch.device("cpu"))) for one in pieces]
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(compose, late, head, motion) for _ in range(4)]
        composed = [one.result(timeout=30) for one in done]
    expected = _tensors(compose(pieces, head, motion))
    assert all(torch.equal(a, b) for one in composed for a, b in zip(_tensors(one), expected, strict=True))


def _slow(piece: Activation) -> Callable[[int], Layer]:
    def bring(n: int) -> Layer:
        time.sleep(0.02)
        return piece.layers[n]

    return bring


def _tensors(one: Activation) -> list[torch.Tensor]:
    return [tensor for layer in one.layers for tensor in layer]
