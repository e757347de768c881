"""Which model it is: a digest over its weights, of large ones over an even sample."""

from __future__ import annotations

import pytest
import torch

from memos.infrastructure.host.fingerprint import evenly


@pytest.mark.parametrize("count", [4097, 1 << 24, (1 << 24) + 1, 136_134_656, 2_000_000_001])
def test_a_sample_lies_within_what_it_is_of(count: int) -> None:
    places = evenly(count, torch.device("cpu"))
    assert (int(places[0]), int(places[-1])) == (0, count - 1)
    assert bool((places.diff() > 0).all())
