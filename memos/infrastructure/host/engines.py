"""Finds by name what runs the local model (model.engine), and where adapters are trained (distil.isolation).

`transformers`, which ships, runs the model in this process. Imports neither torch nor transformers until a model is
loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memos.config import ModelConfig
from memos.extensions import Registry
from memos.infrastructure.host.loading import loading

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.host.training.teach import Crafted, Task, Tell

    Executor = Callable[[Host, Task, Path, Tell], Crafted]

Engine = Callable[[ModelConfig], "Host"]
engines: Registry[Engine] = Registry("memos.engines", "engine")
EXECUTORS: Registry[Executor] = Registry("memos.executors", "executor")


def transformers(config: ModelConfig) -> Host:
    """Raises ModelNotFound, HostError."""
    with loading():
        from memos.infrastructure.host.host import Host

        return Host.load(config)
