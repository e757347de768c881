"""The operations on packs: each names its arguments and the right that it needs."""

from __future__ import annotations

from memos.ops import Operation


class Dump(Operation):
    """Write memories to a pack: these, or all of a namespace."""

    right = "read"
    ids: tuple[str, ...] = ()


class Load(Operation):
    """Take over the memories of a pack."""

    right = "write"
    pack: str


class RemovePack(Operation):
    """Take the memories of a pack out again."""

    right = "delete"
    pack: str


class ListPacks(Operation):
    """List the packs that are installed."""

    right = "read"


class Untrust(Operation):
    """No key stands for the name from now on."""

    right = "manage"
    name: str
