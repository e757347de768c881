"""The operations of the calls on curators, each with the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Curate(Operation):
    """Let the caller's policy write what is due."""

    right = "write"


class UndoCuration(Operation):
    """Take back what one run has done."""

    right = "write"
    run: str


class ListCurations(Operation):
    """List what curators have done."""

    right = "read"


class Converse(Operation):
    """Answer a message with tools that read and write memories."""

    right = "write"
    message: str


class Tie(Operation):
    """Link two memories, or take a link away."""

    right = "annotate"
    a: str
    b: str
    kind: str
