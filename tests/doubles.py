"""Parts that stand in where a real one is not what is tested."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memos.config import DistilConfig, GateConfig
from memos.cube import Contrast, Fact
from memos.interface.reading.contrasts import contrasts
from memos.interface.reading.mem_reader import MemReader


class Even:
    """Every text has the same vector: what is found is all that may be found."""

    name, dim = "even", 2

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(np.array([1, 0], np.float32), np.array([[127, 0]], np.int8)) for _ in texts]


OPEN = GateConfig(askable=0, reliability=0, generality=0, locality=0, in_context=0, override=0, drift=1e9, outdated=1)
# what an adapter learns is not judged; beside the model: what a process of its own adds is tested where it is said so
BRIEF = DistilConfig(
    steps=2, batch=4, batch_keep=4, rank=4, layers=0.25, gate=OPEN, isolation="thread", instant="never"
)


class BriefReader(MemReader):
    """Holds an adapter to few of the prompts: its quality is not what is tested."""

    def contrasts(self, facts: Sequence[Fact], known: Sequence[str], seed: int) -> list[Contrast]:
        every = contrasts(self.askable(facts), known, seed)
        return [k for k in every if not k.held_out][::200] + [k for k in every if k.held_out][::30]
