"""The public calls on directions, as lines of a table like the kernel's."""

from __future__ import annotations

from memos.kernel.calls import ADDS, READS, Bound, public
from memos.plugins.steering import ops
from memos.plugins.steering.service import Steering


class SteeringCalls(Bound):
    """The calls that act for a caller: `SteeringCalls.of(kernel.within("mira")).steer(behaviour)`."""

    plugin = "steering"

    steer = public(Steering.steer, ops.Steer, ADDS, api="", agents="how an agent answers is for a person to decide")
    steerings = public(Steering.steerings, ops.ListSteerings, READS, api="")
