"""A policy of one's own: what is about the subject of the question, and of that what was said last.

A plain policy is two functions; one that moves memories between forms has the methods of `Policy`.

prints:
memos finds: Mira was born in Lisbon.
newest finds: Mira is on holiday in Rome.
"""

import numpy as np

from memos import MemOS
from memos.operation.policies.baselines import Baseline
from memos.operation.policies.policy import Signals


def score(signals: Signals) -> np.ndarray:
    """One number for each memory that the caller may see: the subject first, then the later the better."""
    return signals.subject + 1 / (2 + signals.age)


SAID = [
    ("Mira was born in Lisbon.", "2024-03-01T09:00:00Z"),
    ("Mira is on holiday in Rome.", "2026-03-01T09:00:00Z"),
    ("Tom plays chess.", "2026-03-02T09:00:00Z"),
]

with MemOS(vault="examples-data/policy", policy=Baseline(score)) as memos:
    for text, _ in SAID:
        memos.add(text)
    for name in ("memos", "own"):
        best = memos.search("Where was Mira born?", policy=name)[0]
        print(f"{'newest' if name == 'own' else name} finds: {best.cube.text}")
