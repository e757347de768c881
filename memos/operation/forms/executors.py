"""The registry of executors: a name in `distil.isolation` -> where an adapter is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memos.extensions import Registry

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.host.training.teach import Crafted, Task, Tell

    Executor = Callable[[Host, Task, Path, Tell], Crafted]

EXECUTORS: Registry[Executor] = Registry("memos.executors", "executor")
