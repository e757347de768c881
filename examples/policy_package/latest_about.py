"""A policy in a package of its own: of what is about the subject of a question, what was said last.

`pip install examples/policy_package` makes its name known, and one line of YAML, `policy: latest-about`, chooses it.
Six decisions are all that a policy is; `Policy` in memos/operation/policies/policy.py says when each is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from memos.config import Config
from memos.cube import Form, MemCube
from memos.operation.policies.policy import Floats, Ranked, Reads, Segment, Signals, as_one, best_first


class LatestAbout:
    reads: Reads = "found"  # `admit` is given the memories found, not whole topic groups

    def __init__(self, most: int) -> None:
        """most: memories in a prompt."""
        self._most = most

    def score(self, signals: Signals) -> Floats:
        """The subject first; of that the later the better. signals.age: seconds since it was said."""
        return (signals.subject + 1 / (2 + signals.age)).astype("float32")

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        return best_first(hits)

    def admit(
        self, ranked: Ranked, groups: Sequence[Segment], need: Callable[[MemCube], int], room: int
    ) -> list[Segment]:
        return as_one([cube for cube, _ in ranked[: self._most]], need, room)

    # It moves nothing between forms: all stays text.

    def heat(self, cubes: Sequence[MemCube], now: datetime) -> float:
        return 0.0

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        return None

    def cold(self, heat: float) -> bool:
        return False


def make(config: Config) -> LatestAbout:
    """What the entry point names: the configuration in, the policy out."""
    return LatestAbout(config.scheduler.top_k)
