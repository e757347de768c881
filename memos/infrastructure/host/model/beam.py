"""Searches the beams of one answer; knows log-probabilities and token ids, no models, caches or batches.

The rules are those of transformers' `generate(num_beams=beams, length_penalty=1.0, early_stopping=False)`.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

import torch

Ids = tuple[int, ...]


@dataclass
class BeamSearch:
    """The beams of one answer. `running` are the rows of the next forward; none are left once the answer is certain."""

    beams: int
    max_tokens: int  # of an answer
    ends: Set[int]
    stopped: Callable[[Ids], bool]  # whether the ids hold a stop string
    # best first, by log-probability of the whole and by its mean a token; ids without the token that ended them
    running: list[tuple[float, Ids]] = field(default_factory=lambda: [(0.0, ())])
    finished: list[tuple[float, Ids]] = field(default_factory=list)

    def advance(self, log_p: torch.Tensor) -> list[int]:
        """log_p: [running, vocabulary], of the next token. Returns the row that each beam now running comes from."""
        length, vocabulary = len(self.running[0][1]) + 1, log_p.shape[-1]
        sums = log_p + torch.tensor([total for total, _ in self.running], device=log_p.device)[:, None]
        # every row may end in each of the ends: among so many, `beams` go on
        best = sums.flatten().topk(min(self.beams * max(2, 1 + len(self.ends)), sums.numel()))
        rows, running = list[int](), list[tuple[float, Ids]]()
        for rank, (total, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(place, vocabulary)
            before, ended = self.running[row][1], token in self.ends
            ids = before if ended else (*before, token)
            if ended or length == self.max_tokens or self.stopped(ids):
                self.finished += [(total / length, ids)] if rank < self.beams else []  # the rest is there to go on only
            elif len(running) < self.beams:
                rows.append(row)
                running.append((total, ids))
        self.finished = sorted(self.finished, key=lambda beam: -beam[0])[: self.beams]
        full = len(self.finished) == self.beams
        if full and running and running[0][0] / length <= self.finished[-1][0]:  # none is better as it stands
            rows, running = [], []
        self.running = running
        return rows
