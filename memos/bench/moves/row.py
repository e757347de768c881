"""What each measurement of `memos bench moves` is given, and gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memos.infrastructure.host.host import Host
from memos.plugins.progress import Show


@dataclass(frozen=True)
class Row:
    """What a move did to so many groups of memories.

    seconds_p50: to make it, without its gate. bytes_mean: of what is stored. same_answer: share of the questions on
    the groups answered as over their text. locality: of unrelated questions answered as before. accepted: of the
    groups that the unchanged gate lets pass, or of what the move gave that is right. control: same_answer where the
    move must not help, as over another group.
    """

    move: str
    groups: int
    seconds_p50: float
    bytes_mean: int
    same_answer: float
    locality: float
    accepted: float
    control: float


Measure = Callable[[Host, int, int, Show], Row]  # (host, groups, seed, show)
