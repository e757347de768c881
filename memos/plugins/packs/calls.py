"""The public calls on packs, as lines of a table like the kernel's."""

from __future__ import annotations

from memos.kernel.calls import ADDS, CHANGES, READS, Bound, public
from memos.ops import Get
from memos.plugins.packs import ops
from memos.plugins.packs.service import Packs


class PackCalls(Bound):
    """The calls that act for a caller: `PackCalls.of(kernel.within("mira")).dump(path)`."""

    plugin = "packs"

    dump = public(Packs.dump, ops.Dump, ADDS, api="", files=("path", "key"))
    load = public(Packs.load, ops.Load, ADDS, api="", files=("path",))
    origins = public(Packs.origins, Get, READS, api="")
    publish = public(Packs.publish, ops.Dump, ADDS, api="", files=("place", "key"))
    withdraw = public(Packs.withdraw, ops.RemovePack, CHANGES, api="", files=("place", "key"))
    install = public(Packs.install, ops.Load, ADDS, api="", files=("place",))
    subscribe = public(Packs.subscribe, ops.Load, CHANGES, api="")
    update_packs = public(Packs.update_packs, ops.Load, CHANGES, api="")
    remove_pack = public(Packs.remove_pack, ops.RemovePack, CHANGES, api="")
    installed = public(Packs.installed, ops.ListPacks, READS, api="")
    trusted = public(Packs.trusted, ops.ListPacks, READS, api="")
    untrust = public(Packs.untrust, ops.Untrust, CHANGES, api="")
    export_adapter = public(Packs.export_adapter, Get, ADDS, api="", files=("out",))
