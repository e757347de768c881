"""A tool that agents are offered, and those that plug-ins bring beside the calls of the Memory API."""

from __future__ import annotations

from dataclasses import dataclass

from memos.extensions import Registry
from memos.interface.doors.api.calling import Method
from memos.kernel.calls import Effect


@dataclass(frozen=True)
class Tool:
    """call: a method of `Memory`, or a function that is given one as its first argument. does: what it does to
    memories."""

    call: Method
    does: Effect


tools: Registry[Tool] = Registry("memos.tools", "tool")
