"""The public call that brings an adapter or KV back to text, as a line of a table like the kernel's."""

from __future__ import annotations

from memos.kernel.calls import ADDS, Bound, public
from memos.ops import Get
from memos.plugins.externalize.service import Externalizing


class ExternalizeCalls(Bound):
    """The calls that act for a caller: `ExternalizeCalls.of(kernel.within("mira")).externalize(id, keep=True)`."""

    plugin = "externalize"

    externalize = public(Externalizing.externalize, Get, ADDS, api="", agents="what it keeps is for a person to judge")
