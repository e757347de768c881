"""The operations of the calls on curators, each with the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Curate(Operation, right="write"):
    """Let the caller's policy write what is due."""


class UndoCuration(Operation, right="write"):
    """Take back what one run has done."""

    run: str


class ListCurations(Operation, right="read"):
    """List what curators have done."""


class Converse(Operation, right="write"):
    """Answer a message with tools that read and write memories."""

    message: str


class Tie(Operation, right="annotate"):
    """Link two memories, or take a link away."""

    a: str
    b: str
    kind: str
