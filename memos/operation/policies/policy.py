"""What a policy decides, and what it is told. Knows no stores, no tensors, no rights."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Signals:
    """What speaks for each candidate of a search: one value for each, [candidates].

    Shares of words are BM25 over the most that a text could reach with this query: 0 none of its words, 1 all of them,
    each counted as much as it is rare.
    """

    near: Floats  # cosine of the query and the memory in its context
    tokens: Floats  # mean cosine of the query's tokens, each with the one of the memory that is nearest to it; `near`
    # as long as these were not compared
    words: Floats  # share of the query's words in the memory
    around: Floats  # the same of its neighbours in the conversation, the nearer the more
    thread: Floats  # the same of the whole conversation
    speaker: Floats  # 1 where the query names just the one who said it
    subject: Floats  # 1 where the query is about its topic group
    linked: Floats  # 1 over the number of facts between it and what the query is about; 0 where that is out of reach
    answers: Floats  # what a cross-encoder says, from 0 to 1; 0 without one, and for what it did not see
    question: Floats  # 1 where it ends with a question itself
    length: Floats  # log of its terms, 0 at about six of them
    age: Floats  # seconds since it was said

    def at(self, candidates: npt.NDArray[np.int64], **seen: Floats) -> Signals:
        """Those of some candidates, with what was seen of these alone."""
        return Signals(**{f.name: getattr(self, f.name)[candidates] for f in fields(self)} | seen)

    def of(self, candidate: int) -> dict[str, float]:
        return {f.name: round(float(getattr(self, f.name)[candidate]), 4) for f in fields(self)}
