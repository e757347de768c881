"""The operations on directions: each names its arguments and the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Steer(Operation, right="write"):
    """Make a direction for an instruction that always holds."""

    instruction: str


class ListSteerings(Operation, right="read"):
    """List the directions in force."""
