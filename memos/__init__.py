"""memos is a memory operating system for local language models; its public names are loaded when they are used.

`memos.MemOS` is the kernel, `memos.Memory` its calls as plain values; importing this package loads no model library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memos.config import Config as Config
    from memos.interface.doors.api.memory import AsyncMemory as AsyncMemory
    from memos.interface.doors.api.memory import Memory as Memory
    from memos.kernel.mem_os import MemOS as MemOS

# Read as torch loads OpenMP: its threads wait for one another for some 30 us before they sleep, longer than from one
# loop of a forward to the next. By default it is 3 ms, in which they hold cores that requests and searches need.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
__version__ = "0.1.0"
__all__ = ["AsyncMemory", "Config", "MemOS", "Memory", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "MemOS":
        from memos.kernel.mem_os import MemOS

        return MemOS
    if name in ("Memory", "AsyncMemory"):
        from memos.interface.doors.api import memory as mem_api

        return getattr(mem_api, name)
    if name == "Config":
        from memos.config import Config

        return Config
    raise AttributeError(f"module 'memos' has no attribute {name!r}")
