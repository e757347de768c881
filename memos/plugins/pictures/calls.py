"""The public calls on files, as lines of a table like the kernel's."""

from __future__ import annotations

from memos.kernel.calls import ADDS, READS, Bound, public
from memos.ops import Add, Get
from memos.plugins.pictures.service import Pictures


class PictureCalls(Bound):
    """The calls that act for a caller: `PictureCalls.of(kernel.within("mira")).file(id)`."""

    plugin = "pictures"

    add_file = public(Pictures.add_file, Add, ADDS, api="")
    file = public(Pictures.file, Get, READS, api="")
