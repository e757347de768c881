"""The registry of executors: finds where an adapter is trained by the name in distil.isolation."""

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
