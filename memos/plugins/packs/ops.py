"""The operations on packs: each names its arguments and the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Dump(Operation, right="read"):
    """Write memories to a pack: these, or all of a namespace."""

    ids: tuple[str, ...] = ()


class Load(Operation, right="write"):
    """Take over the memories of a pack."""

    pack: str


class RemovePack(Operation, right="delete"):
    """Take the memories of a pack out again."""

    pack: str


class ListPacks(Operation, right="read"):
    """List the packs that are installed."""


class Untrust(Operation, right="manage"):
    """No key stands for the name from now on."""

    name: str
