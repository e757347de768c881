"""Orders rows that were found: by score, one for each turn that was said, and conversations in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count

import numpy as np

from memos.operation.finding.catalog import Catalog
from memos.operation.finding.columns import Floats, Rows
from memos.operation.policies.policy import Scores

PIECE_ROWS = 64  # scores of which the highest is looked at first


def places_by_score(scores: Scores, rows: Rows) -> Rows:
    """Places of rows, best first; among equals the earlier row."""
    return np.lexsort((rows, -np.asarray(scores)))


def highest(scores: Floats, k: int) -> Rows:
    """Rows of the k highest that are above 0, or of all that are."""
    # more than k pieces reach the bound, and so do as many rows: few are left to be put in order
    pieces = scores[: len(scores) // PIECE_ROWS * PIECE_ROWS].reshape(-1, PIECE_ROWS).max(1)
    bound = -np.partition(-pieces, k)[k] if len(pieces) > k else 0
    rows = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    return rows[np.argpartition(-scores[rows], k)[:k]] if len(rows) > k else rows


def first_of_turns(catalog: Catalog, rows: Rows) -> Rows:
    """Places of the first row of each turn, in order."""
    _, first = np.unique(catalog.turn.all[rows], return_index=True)
    return np.sort(first)


def with_turns(catalog: Catalog, rows: Rows, k: int) -> int:
    """How many rows, from the first, have k turns; all of them, where there are fewer."""
    most = k
    while most < len(rows) and len(np.unique(catalog.turn.all[rows[:most]])) < k:
        most *= 2  # few are looked at: to tell the turns of all of a large store takes as long as to rank them
    return int(first_of_turns(catalog, rows[:most])[:k][-1]) + 1


def spread(catalog: Catalog, rows: Rows, with_replies: bool) -> Rows:
    """Places of rows, best first: the best of each conversation, then the second of each, and so on. with_replies:
    each with what was said before or after it on the other side, where that is among them. Summaries count as one
    conversation: in a row of them there is room for little else."""
    threads = np.where(catalog.summaries[rows], -1, catalog.thread.all[rows]).tolist()
    ranks = defaultdict[int, Iterator[int]](count)  # of each conversation, the next one
    order = np.argsort([next(ranks[thread]) for thread in threads], kind="stable").tolist()
    if not with_replies:
        return np.array(order, np.int64)
    place_of = dict(zip(catalog.turn.all[rows].tolist(), range(len(rows)), strict=True))
    taken = dict[int, None]()
    for place in order:
        other = place_of.get(catalog.other_side(int(rows[place])), place)
        taken |= dict.fromkeys((place, other))
    return np.array(list(taken), np.int64)
