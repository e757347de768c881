"""The public calls on curators and links, as lines of a table like the kernel's."""

from __future__ import annotations

from memos.kernel.calls import ADDS, CHANGES, READS, Bound, public
from memos.ops import Get
from memos.plugins.curators import ops
from memos.plugins.curators.service import Curators


class CuratorCalls(Bound):
    """The calls that act for a caller: `CuratorCalls.of(kernel.within("mira")).curate()`."""

    plugin = "curators"

    curate = public(Curators.curate, ops.Curate, CHANGES, api="")
    curations = public(Curators.curations, ops.ListCurations, READS, api="")
    undo_curation = public(Curators.undo_curation, ops.UndoCuration, CHANGES, api="")
    converse = public(Curators.converse, ops.Converse, CHANGES, api="")
    writer_cost = public(Curators.writer_cost, ops.ListCurations, READS, api="")
    link = public(Curators.link, ops.Tie, ADDS, api="")
    unlink = public(Curators.unlink, ops.Tie, CHANGES, api="")
    linked = public(Curators.linked, Get, READS, api="")
    neighbours = public(Curators.neighbours, Get, READS, api="")
