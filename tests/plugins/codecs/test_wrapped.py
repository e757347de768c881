"""KV as it is behind other memories."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.compose import compose
from memos.plugins.codecs.wrapped import as_behind, encode_wrapped
from tests.infrastructure.host.kv.test_compose import CUBES


@pytest.fixture(scope="module")
def small() -> Host:
    return Host.load(ModelConfig())


def test_what_was_read_behind_just_what_it_stands_behind_is_exact(small: Host) -> None:
    """Wrapping with the very memories that come before: composed, it is the full prompt."""
    motion = small.capability.motion
    assert motion is not None
    first, second = (small.encode(cube) for cube in CUBES[:2])
    wrapped = as_behind(second, [small.encode((*CUBES[0], *CUBES[1]))], len(small.head), motion)
    full = small.encode((*CUBES[0], *CUBES[1]))
    together = compose([first, wrapped], len(small.head), motion)
    assert together.ids == full.ids
    for mine, theirs in zip(together.layers, full.layers, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_wrapped_kv_keeps_its_head_and_differs_behind_it(small: Host) -> None:
    alone, head = small.encode(CUBES[2]), len(small.head)
    wrapped = encode_wrapped(small, CUBES[2], [f"Person {n} has a dog called Rex{n}." for n in range(20)])
    assert wrapped.ids == alone.ids and wrapped.rows == alone.rows
    for mine, theirs in zip(wrapped.layers, alone.layers, strict=True):
        assert torch.equal(mine[0][..., :head, :], theirs[0][..., :head, :])
    assert not torch.equal(wrapped.layers[-1][0][..., head:, :], alone.layers[-1][0][..., head:, :])


def test_without_others_there_is_nothing_to_wrap_it_in(small: Host) -> None:
    assert encode_wrapped(small, CUBES[0], []).digest() == small.encode(CUBES[0]).digest()
