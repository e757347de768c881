"""memos: `MemOS.keep` and `MemOS.search`, each conversation a user of one vault.

It embeds in the background after a turn is durable, a turn within what was said around it, so it needs its own
embedder in its process. A search waits for what is not embedded yet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from worker import Ask, Turn

from memos import Config, MemOS
from memos.config import EmbedderConfig
from memos.cube import ANSWERING
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.kernel.wiring import Parts
from memos.operation.finding.mem_operator import MemOperator
from memos.ops import Add


class Embedding:
    """memos' embedder, with its time taken. What is learnt stands for a turn in any context: for timing alone."""

    def __init__(self, ask: Ask) -> None:
        self._embedder = Embedder(EmbedderConfig())
        self.name, self.dim = self._embedder.name, self._embedder.dim
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.seconds = 0.0

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        began = time.perf_counter()
        parts = texts if spans is None else [text[a:b] for text, (a, b) in zip(texts, spans, strict=True)]
        known = all(part in self._known for part in parts)
        found = [self._known[part] for part in parts] if known else self._embedder.read(texts, spans)
        self.seconds += time.perf_counter() - began
        return found

    def learn(self, turns: Sequence[Turn]) -> None:
        texts = [turn["text"] for turn in turns]
        self._known = dict(zip(texts, self._embedder.read(texts), strict=True))


class Memos:
    def __init__(self, kernel: MemOS) -> None:
        self._kernel = kernel

    def add(self, turns: Sequence[Turn]) -> None:
        ops = [
            Add(
                text=turn["text"],
                speaker=turn["speaker"],
                said=datetime.fromisoformat(turn["said"]),
                origin=turn["name"],
                thread=turn["thread"],
                kind="event",
            )
            for turn in turns
        ]
        self._kernel.within(turns[0]["user"]).keep(ops)

    def ready(self) -> None:
        self._kernel.parts.operator().refresh()
        self._kernel.parts.operator().settle()

    def search(self, user: str, question: str, k: int) -> list[str]:
        return [hit.cube.header.origin for hit in self._kernel.within(user).search(question, top_k=k)]


class _Parts(Parts):
    """Those of a kernel whose embedder is given."""

    def __init__(self, embed: Embedding, folder: Path) -> None:
        super().__init__(Config(), vault=folder)
        self._embed = embed

    def make_operator(self) -> MemOperator:
        retrieval = self.config.retrieval
        return MemOperator(self.vault, self._embed, ANSWERING, retrieval.exact_ms, retrieval.hops)


def open_store(folder: Path, embed: Embedding, variant: str) -> Memos:
    return Memos(MemOS(parts=_Parts(embed, folder)))
