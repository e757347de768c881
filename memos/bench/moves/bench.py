"""`memos bench moves`: every move between the forms of memory on the same groups, each with its control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memos.bench.moves import edit, externalize, steer
from memos.bench.moves.compact import compacting
from memos.bench.moves.row import Measure
from memos.bench.moves.train import adapters, train, trained_kv, write_or_train
from memos.bench.moves.wrap import wrapping
from memos.errors import Unsupported
from memos.infrastructure.host.host import Host
from memos.plugins.progress import Show
from memos.plugins.training.instant import write_instant

MOVES: Mapping[str, Measure] = {
    "distil": adapters("distil", train),
    "instant": adapters("instant", write_instant),
    "instant-merge-2": adapters("instant-merge-2", write_instant, merged=2),
    "instant-then-distil": adapters("instant-then-distil", write_or_train),
    "trained-kv": trained_kv("trained-kv"),
    "compact-4x": compacting("compact-4x", 1 / 4),
    "compact-10x": compacting("compact-10x", 1 / 10),
    "wrap-8": wrapping("wrap-8", 8),
    "wrap-16": wrapping("wrap-16", 16),
    "steer": steer.measure,
    "externalize": externalize.measure,
    "edit": edit.measure,
}
# Where a group takes a minute or two, fewer are made; of those that take a second, more, as a question decides less.
_TIMES = {"distil": 1 / 8, "instant-then-distil": 1 / 2, "trained-kv": 1 / 16, "externalize": 1 / 4} | dict.fromkeys(
    ("wrap-8", "wrap-16"), 8
)


def bench_moves(host: Host, moves: Sequence[str], groups: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each move, measured on so many groups of 16 facts, fewer where one takes a minute and more where one
    takes a second; a move that this model cannot make is named with the reason."""
    rows, refused = list[dict[str, Any]](), dict[str, str]()
    for name in moves:
        try:
            row = MOVES[name](host, max(1, int(groups * _TIMES.get(name, 1))), seed, show)
        except Unsupported as error:
            refused[name] = str(error)
        else:
            rows.append(asdict(row))
    return {"model": host.describe(), "rows": rows, "refused": refused}
