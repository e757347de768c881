"""`memos calibrate`: measures the fidelity levels and this machine for a model, and stores both in its vault."""

from __future__ import annotations

from typing import Any

from memos.bench.compose import bench_compose
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS

COUNTS = (2, 4, 8)


def calibrate(kernel: MemOS, questions: int, seed: int, show: Show) -> dict[str, Any]:
    """The card: a row for each level and number of cubes, and the level that `fidelity` now comes to.

    A card that an interrupt cuts off is not kept; the old one stays.
    """
    card = bench_compose(kernel.host, questions, seed, show, COUNTS)
    kernel.vault.cards.put(kernel.host.digest, card)
    costs = kernel.parts.serving().measure()
    chosen = kernel.parts.serving().levels()
    return card | {"costs": costs.model_dump(), "chosen": chosen[0].model_dump() if chosen else {"level": "L4"}}
