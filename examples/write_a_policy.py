"""A policy of one's own: what is about the subject of the question, and of that what was said last.

A plain policy is two functions; one that moves memories between forms has the methods of `Policy`.

prints:
memos finds: Mira: I was born in Lisbon.
own finds: Mira: I am on holiday in Rome.
"""

import numpy as np

from memos import MemOS
from memos.operation.policies.policy import Signals
from memos.plugins.policies.baselines import Baseline


def score(signals: Signals) -> np.ndarray:
    """One number for each memory that the caller may see: the subject first, then the later the better."""
    return signals.subject + 1 / (2 + signals.age)


with MemOS(vault="examples-data/policy", policy=Baseline(score)) as memos:
    for name, said in (
        ("Mira", "I was born in Lisbon."),
        ("Mira", "I am on holiday in Rome."),
        ("Tom", "I play chess."),
    ):
        memos.add([{"speaker": name, "content": said}])
    for policy in ("memos", "own"):
        best = memos.search("Where was Mira born?", policy=policy)[0]
        print(f"{policy} finds: {best.cube.text}")
