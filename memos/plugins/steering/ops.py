"""The operations on directions: each names its arguments and the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Steer(Operation):
    """Make a direction for an instruction that always holds."""

    right = "write"
    instruction: str


class ListSteerings(Operation):
    """List the directions in force."""

    right = "read"
