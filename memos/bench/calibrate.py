"""`memos calibrate`: measures the fidelity levels and this machine for a model, and stores both in its vault."""

from __future__ import annotations

from functools import partial
from typing import Any

from memos.bench.compose import bench_compose
from memos.kernel.mem_os import MemOS
from memos.plugins.progress import Show

COUNTS = (2, 4, 8)


def calibrate(kernel: MemOS, questions: int, seed: int, show: Show) -> dict[str, Any]:
    """The card: a row for each level and number of cubes, and the level that `fidelity` now comes to.

    A card that an interrupt cuts off is not kept; the old one stays.
    """
    serving = kernel.parts.serving()
    encode = partial(kernel.parts.transitions().encoded, codec=kernel.config.activation.codec)
    card = bench_compose(kernel.host, questions, seed, show, COUNTS, encode)
    kernel.vault.cards.put(serving.card(), card)
    costs = serving.measure()
    chosen = serving.levels()
    return card | {"costs": costs.model_dump(), "chosen": chosen[0].model_dump() if chosen else {"level": "L4"}}
